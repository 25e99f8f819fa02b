#!/usr/bin/env bash
# Makes stand-ins for python:3.11-slim, python:3.11 and redis:7 out of Debian packages, where no image registry can be
# reached: treadle-base/{python,build,redis}. Needs root, a Docker daemon, debootstrap and a Debian mirror.
# What is there already is left alone; `docker image rm` what shall be made anew.
set -euo pipefail

MIRROR=${DEBIAN_MIRROR:-} # debootstrap's default, if empty
IMAGES=(treadle-base/python:3.11-slim treadle-base/redis:7 treadle-base/build:3.11)

docker image inspect "${IMAGES[@]}" >/dev/null 2>&1 && exit 0
command -v debootstrap >/dev/null || { echo "base_images.sh: install debootstrap" >&2; exit 1; }

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
install_packages() { DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -qq -y --no-install-recommends "$@" >/dev/null; }
import() { # NAME [CHANGE OF THE IMAGE'S CONFIGURATION]...
    tar -C "$root" --exclude=./var/cache/apt --exclude=./var/lib/apt/lists -c . | docker import "${@:2}" - "$1" >/dev/null
    echo "made $1"
}

debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$root" $MIRROR >/dev/null
ln -s python3 "$root/usr/bin/python" # as the images that these stand for call it
import treadle-base/python:3.11-slim --change 'CMD ["python"]'
install_packages redis-server
mkdir "$root/data" && chroot "$root" chown redis:redis /data
import treadle-base/redis:7 --change 'VOLUME /data' --change 'WORKDIR /data' --change 'CMD ["redis-server"]'
install_packages g++ python3-dev
import treadle-base/build:3.11 --change 'CMD ["python"]'
