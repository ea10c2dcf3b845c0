"""The model hub, which many machines cannot reach: asked once, before anything waits for it again and again."""

from functools import cache

from huggingface_hub import constants, get_session

from kvbench.console import console

PATIENCE = 10.0  # seconds


@cache
def look_for_hub() -> bool:
    """Whether the hub answers. If it does not, only what was downloaded before is looked for from here on: each file
    would else be asked for six times, 23 s long."""
    if constants.is_offline_mode():
        return False
    fault = fault_of_hub()
    if fault:
        console.print(
            f"the model hub at {constants.ENDPOINT} cannot be reached ({fault}): "
            "only what was downloaded before is used",
            soft_wrap=True,
            markup=False,
        )
        constants.HF_HUB_OFFLINE = True
    return not fault


def fault_of_hub() -> str:
    """Why the hub does not answer; nothing if it does."""
    if constants.is_offline_mode():
        return "offline mode"
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception as error:  # of the network: httpx has dozens, and proxies theirs
        return type(error).__name__
    return ""
