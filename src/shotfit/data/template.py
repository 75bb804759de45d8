"""The words that stand for a class: a template with one {} where its name goes, or several of them
and sentences about the class."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Annotated, Any

from shotfit.config import Must
from shotfit.errors import UsageError
from shotfit.system.terminal import has_controls

# What the code of 2SFS feeds every dataset, full stop included.
TEMPLATE = "a photo of a {}."


def is_template(text: str) -> bool:
    """Whether `text.format(name)` puts the name in one place and asks for nothing else."""
    return _places(text) == [""]


def asks_only_for(text: str, names: set[str]) -> bool:
    """Whether `text.format` puts values of these names in its braces as they are, and no others."""
    places = _places(text)
    return places is not None and names.issuperset(places)


def _places(text: str) -> list[str] | None:
    """What stands between the braces of a text; nothing where one opens or closes nothing."""
    try:
        parts = [part[1:] for part in Formatter().parse(text) if part[1] is not None]
    except ValueError:
        return None
    return [
        f"{name}{f'!{kind}' if kind else ''}{f':{how}' if how else ''}" for name, how, kind in parts
    ]


def check_template(text: str) -> None:
    """Refuses a text that is not a template.

    Raises:
        UsageError: saying what is missing.
    """
    if not is_template(text):
        raise UsageError(f"The template {text!r} must hold {{}} once, where the class name goes.")


Template = Annotated[str, Must("hold {} once, where the class name goes", is_template)]
"""The type of an option that takes a template."""


@dataclass(frozen=True)
class Words:
    """Several templates, and sentences that describe classes, by their names.

    A class is then the mean of the unit embeddings of its texts, brought to unit norm again: those
    of every template, and its sentences (Radford et al., ICML 2021, section 3.1.4; sentences: Menon
    and Vondrick, ICLR 2023; Pratt et al., ICCV 2023). In a sentence, {} stands for the name.
    """

    templates: tuple[str, ...] = (TEMPLATE,)
    descriptions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, template: "str | Words") -> "Words":
        """A single template as words; words as they are."""
        return template if isinstance(template, Words) else cls((template,))

    @classmethod
    def from_plain(cls, values: Any) -> "Words":
        """What `plain` gave.

        Raises:
            UsageError: for anything else, a template without a place for the name, and a sentence
                that is empty or has control characters.
        """
        if not isinstance(values, Mapping) or not {"templates", "descriptions"} >= set(values):
            raise UsageError("Words are templates and descriptions.")
        templates = _texts("templates", values.get("templates", [TEMPLATE]))
        for template in templates:
            check_template(template)
        sentences = values.get("descriptions", {})
        if not isinstance(sentences, Mapping):
            raise UsageError("Descriptions are lists of sentences, by the names of classes.")
        return cls(
            templates, {str(name): _texts(repr(name), sentences[name]) for name in sentences}
        )

    @property
    def several(self) -> bool:
        """Whether a class may have more than one text."""
        return len(self.templates) > 1 or bool(self.descriptions)

    def texts(self, name: str) -> tuple[str, ...]:
        """The texts of a class: its name in every template, and the sentences about it."""
        own = self.descriptions.get(name, self.descriptions.get(name.replace(" ", "_"), ()))
        prompts = [template.format(name) for template in self.templates]
        return (*prompts, *(sentence.replace("{}", name) for sentence in own))

    def undescribed(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names that only the templates speak of."""
        spoken = {name.replace("_", " ") for name in self.descriptions}
        return tuple(name for name in names if name.replace("_", " ") not in spoken)

    def plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        sentences = {name: list(own) for name, own in self.descriptions.items()}
        return {"templates": list(self.templates), "descriptions": sentences}


def given_words(
    templates: Sequence[str], descriptions: Mapping[str, Sequence[str]]
) -> str | Words | None:
    """What is meant by templates and descriptions: None for neither, a template where it is alone,
    and the default template where there are descriptions only.

    Raises:
        UsageError: as `Words.from_plain`.
    """
    if isinstance(templates, str):
        raise UsageError(f"Give templates as a list, not as the one string {templates!r}.")
    if not templates and not descriptions:
        return None
    words = Words.from_plain(
        {"templates": list(templates) or [TEMPLATE], "descriptions": descriptions}
    )
    return words if words.several else words.templates[0]


def data_options(words: str | Words | None) -> dict[str, Any]:
    """The words among the options of a dataset, as `load_dataset` takes them."""
    if words is None:
        return {}
    return {"template": words} if isinstance(words, str) else {"words": words.plain()}


def _texts(what: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UsageError(f"{what} must be a list of texts.")
    texts = tuple(values)
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise UsageError(f"{what} must be a list of texts, none of them empty.")
    broken = next((text for text in texts if has_controls(text)), None)
    if broken is not None:
        raise UsageError(f"{what} has {broken!r}, which holds control characters.")
    return texts
