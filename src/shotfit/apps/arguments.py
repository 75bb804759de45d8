"""Lists on the command line, as `--shots 4 8 16`.

The rule: in a command of class `ListCommand`, an option that may be repeated takes all words up to
the next one that starts with "-" (a number such as -1 does not count as one). `--shots 4 8 16`,
`--shots 4,8,16` and `--shots 4 --shots 8 --shots 16` are the same; a value with "=" in it is not
split at commas. Positional arguments therefore come before such an option, or after "--".
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from typer.core import TyperCommand

_NUMBER = re.compile(r"-\.?\d")


class ListCommand(TyperCommand):
    """A command whose repeatable options take lists.

    `implied` names options whose value may be left out, with the value that this stands for;
    `whole` repeatable ones whose values are texts that may hold commas, one each.
    """

    implied: ClassVar[Mapping[str, str]] = {}
    whole: ClassVar[Collection[str]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Spreads the lists before the usual parsing."""
        lists = {
            name
            for parameter in self.params
            if parameter.param_type_name == "option" and getattr(parameter, "multiple", False)
            for name in parameter.opts
            if name not in self.whole
        }
        return super().parse_args(ctx, spread(args, lists, self.implied))


def spread(
    words: Sequence[str], lists: Collection[str], implied: Mapping[str, str] | None = None
) -> list[str]:
    """`words` with every value of the options in `lists` behind an option of its own, and the
    `implied` values of options that stand without one."""
    implied = implied or {}
    result: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--":
            return [*result, *words[position - 1 :]]
        option, equals, value = word.partition("=")
        if option in lists:
            values = [value] if equals else []
            while position < len(words) and not _is_option(words[position]):
                values.append(words[position])
                position += 1
            parts = [part for value in values for part in _parts(value)]
            # Without a value it stays as it is, and the parser says what is wrong.
            result += [item for part in parts for item in (option, part)] or [word]
            continue
        result.append(word)
        alone = position == len(words) or _is_option(words[position])
        if word in implied and alone:
            result.append(implied[word])
    return result


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-" and not _NUMBER.match(word)


def _parts(value: str) -> list[str]:
    return [value] if "=" in value else [part for part in value.split(",") if part]
