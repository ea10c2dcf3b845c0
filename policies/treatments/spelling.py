"""Reads formats as engines and papers write them: ``q8_0/q4_0`` for keys and values in two types,
``hadamard+q4_0`` for rows that are turned first. Each has one name in a run, with its options in
brackets."""

import re
from collections.abc import Collection

from policies.declaration.names import PolicyError

ROTATION = "hadamard"
# How engines name a tensor that is not quantised.
EXACT = ("f16", "bf16", "f32")
PLUS = re.compile(r"\+(?![^()]*\))")  # outside brackets
PAIR = re.compile(r"(?P<keys>[a-z0-9_]+)/(?P<values>[a-z0-9_]+)")


def spell_out(name: str, formats: Collection[str]) -> str:
    """Returns the name that a policy has in a run; other names are left as they are. ``formats``:
    the names of all quantisations. Raises :class:`PolicyError` for a rotation before something
    else, and for two tensors of which none is quantised.

    >>> spell_out("snapkv+q8_0/q4_0", ["q8_0", "q4_0"])
    'snapkv+q8_0(values=q4_0)'
    >>> spell_out("hadamard+f16/q4_0", ["q4_0"])
    'q4_0(tensor=V,rotate=hadamard)'
    """
    parts: list[str] = []
    is_rotated = False
    for part in PLUS.split(name):
        if part == ROTATION:
            is_rotated = True
            continue
        written = _spell_pair(part, formats)
        if is_rotated:
            if written.partition("(")[0] not in formats:
                raise PolicyError(
                    f"{name}: {ROTATION} comes right before a quantisation, as {ROTATION}+q4_0"
                )
            written = _with_option(written, f"rotate={ROTATION}")
            is_rotated = False
        parts.append(written)
    if is_rotated:
        raise PolicyError(f"{name}: put a quantisation behind {ROTATION}, as {ROTATION}+q4_0")
    return "+".join(parts)


def read_types(name: str, formats: Collection[str]) -> tuple[str, str] | None:
    """Returns the types of keys and of values, as engines name them, of a policy that only stores
    both: the inverse of :func:`spell_out`; None for other policies. ``formats``: the names of all
    quantisations.

    >>> read_types("q8_0(values=q4_0)", ["q8_0", "q4_0"]), read_types("q4_0(tensor=V)", ["q4_0"])
    (('q8_0', 'q4_0'), ('f16', 'q4_0'))
    >>> read_types("q4_0(layers=2-)", ["q4_0"])
    """
    kind, _, rest = name.partition("(")
    if kind not in formats:
        return None
    option = rest.removesuffix(")")
    if not option:
        return kind, kind
    if option == "tensor=V":
        return EXACT[0], kind
    if option == "tensor=K":
        return kind, EXACT[0]
    key, _, values = option.partition("=")
    if key == "values" and values in formats:
        return kind, values
    return None


def _spell_pair(text: str, formats: Collection[str]) -> str:
    """Writes two types as one format with an option; what is no pair of types stays as it is."""
    pair = PAIR.fullmatch(text)
    if pair is None:
        return text
    keys, values = pair["keys"], pair["values"]
    types = {*formats, *EXACT}
    if keys not in types or values not in types:
        return text
    if keys in EXACT and values in EXACT:
        raise PolicyError(f"{text}: nothing is quantised: that is the policy full")
    if keys in EXACT:
        return f"{values}(tensor=V)"
    if values in EXACT:
        return f"{keys}(tensor=K)"
    return keys if keys == values else f"{keys}(values={values})"


def _with_option(name: str, option: str) -> str:
    kind, bracket, options = name.partition("(")
    if bracket:
        return f"{kind}({options[:-1]},{option})"
    return f"{kind}({option})"
