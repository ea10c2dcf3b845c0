"""Checks once whether the model hub can be reached, before anything waits for it again and
again."""

from functools import cache

import huggingface_hub
from huggingface_hub import constants

from kvbench.system.console import console

PATIENCE = 10.0  # seconds


@cache
def look_for_hub() -> bool:
    """Tells whether the hub answers. If it does not, this process uses downloaded files only from
    then on; otherwise it would ask six times for each file, which takes 23 s."""
    if constants.is_offline_mode():
        return False
    fault = fault_of_hub()
    if fault:
        away = f"the model hub at {constants.ENDPOINT} cannot be reached ({fault})"
        console.print(f"{away}: only downloaded files are used", soft_wrap=True)
        constants.HF_HUB_OFFLINE = True
    return not fault


def fault_of_hub() -> str:
    """Says why the hub does not answer, or returns an empty text if it does."""
    if constants.is_offline_mode():
        return "offline mode"
    try:
        # The client of the hub takes a tenth of a second to import, which a mistyped option does
        # not wait for.
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception as error:  # httpx has dozens of network errors, and proxies raise their own
        return type(error).__name__
    return ""
