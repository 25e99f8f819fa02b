"""When Python looks for cycles of objects that nobody needs any more: it stops the process, so seldom and little.

Most objects go when the last reference does. The collector finds the rest, and a full run looks at all there are: with
4,000 requests in flight these are half a million, a quarter of a second on a busy core. By Python's own measure such a
run comes with each thousand requests.
"""

from __future__ import annotations

import gc

# A run over the young looks at 10,000 objects (2 ms), one over those that survived it at 50,000 (10 ms), and a full one
# comes when a million more have been made than were freed: after ten thousand requests or so.
THRESHOLDS = (10_000, 5, 20)


def settle() -> None:
    """Set aside what the process has loaded and will always need, and have full runs be seldom from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
