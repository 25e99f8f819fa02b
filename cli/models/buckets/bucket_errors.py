"""What a storage that speaks S3 refuses, and what is in the way to it, as `CliError` with what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cli.errors import CliError
from cli.models.source import BucketModel

_RENEW = "renew them (`aws sso login`, AWS_SESSION_TOKEN, or what your storage gives out)"
_CODES = {
    "NoSuchBucket": "there is no such bucket: look at its name, AWS_ENDPOINT_URL_S3 and AWS_REGION",
    "NoSuchKey": "there is no such object: look at its key; the prefix of a directory ends with /",
    "NoSuchVersion": "there is no such version; `treadle models pin` tells the latest",
    "AccessDenied": "access is denied: its credentials need s3:ListBucket for the bucket, s3:GetObject for its objects",
    "ExpiredToken": f"the credentials have expired: {_RENEW}",
    "InvalidAccessKeyId": "the storage does not know this access key: look at AWS_ACCESS_KEY_ID, AWS_PROFILE and "
    "AWS_ENDPOINT_URL_S3",
    "SignatureDoesNotMatch": "the secret is not that of the access key: look at AWS_SECRET_ACCESS_KEY or the profile",
    "RequestTimeTooSkewed": "this machine's clock differs from the storage's: set it",
    "InvalidObjectState": "it is archived: restore it, then pull again",
    "PermanentRedirect": "the bucket is in another region: set AWS_REGION",
    "PreconditionFailed": "it changed while it was fetched; pull again",
    "InvalidRange": "it is empty, or changed while it was fetched; pull again",
}
_ALIKE = {
    "301": "PermanentRedirect",  # numbers: HEAD is refused without words
    "400": "AccessDenied",
    "403": "AccessDenied",
    "404": "NoSuchKey",
    "412": "PreconditionFailed",
    "AllAccessDisabled": "AccessDenied",
    "AuthorizationHeaderMalformed": "PermanentRedirect",
    "ExpiredTokenException": "ExpiredToken",
    "IllegalLocationConstraintException": "PermanentRedirect",
    "InvalidToken": "ExpiredToken",
    "RequestExpired": "ExpiredToken",
    "TokenRefreshRequired": "ExpiredToken",
}
_OF_STORAGE = {"GetObject", "HeadObject", "ListObjectsV2"}
"""What is asked here; botocore asks others for credentials."""
_SENSELESS = (LookupError, TypeError, ValueError, RecursionError)
"""What reading an answer without size or sense raises, and botocore where it is sent from place to place."""
_USER = re.compile(r"//[^/@\s]*@")
_NO_CREDENTIALS = (
    "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or give the pod's service "
    "account a role"
)


@contextmanager
def telling(model: BucketModel) -> Iterator[None]:
    """All that botocore raises inside of the block; a full disk stays an `OSError` with ENOSPC."""
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:
        raise CliError(f"{model.address}: {_refusal(error.operation_name, error.response)}") from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        raise CliError(f"{model.address}: {_NO_CREDENTIALS}") from error
    except (exceptions.CredentialRetrievalError, exceptions.TokenRetrievalError, exceptions.SSOError) as error:
        raise CliError(f"{model.address}: no credentials came ({_shown(error)}): {_RENEW}") from error
    except (exceptions.ProfileNotFound, exceptions.ConfigParseError, exceptions.ConfigNotFound) as error:
        raise CliError(f"{model.address}: {error}; look at AWS_PROFILE and AWS_CONFIG_FILE") from error
    except (exceptions.ConnectionError, exceptions.HTTPClientError) as error:
        raise CliError(
            f"{model.address}: its storage cannot be reached ({type(error).__name__}): look at AWS_ENDPOINT_URL_S3, "
            "proxies and certificates (AWS_CA_BUNDLE); what has come is kept"
        ) from error
    except exceptions.BotoCoreError as error:
        raise CliError(f"{model.address} was not fetched: {_shown(error)}") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CliError(f"{model.address} was not fetched: {error}") from error
    except _SENSELESS as error:
        raise CliError(
            f"{model.address}: its storage does not answer as S3 does ({type(error).__name__}): look at "
            "AWS_ENDPOINT_URL_S3, and at what stands between"
        ) from error


def _shown(error: Exception) -> str:
    """Its text, without names and passwords of addresses in it."""
    return _USER.sub("//", str(error))


def _refusal(operation: str, response: Mapping[str, Any]) -> str:
    """In our words where they say what to do, else in the storage's."""
    told = response.get("Error", {})
    code = str(told.get("Code", ""))
    if operation not in _OF_STORAGE:
        return (
            f"no credentials came: {operation} says {code}: look at AWS_ROLE_ARN, the profile, and whom the role trusts"
        )
    text = _CODES.get(_ALIKE.get(code, code))
    return text if text is not None else f"its storage refuses: {code} {told.get('Message', '')}".rstrip()
