"""shotfit push"""

from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options

EXAMPLES = (
    "shotfit push pets user/pets",
    "shotfit push pets-merged user/pets-clip --private --revision v2",
)


def push(
    model: Annotated[
        Path, typer.Argument(help="A saved classifier, or the folder of `export merged`.")
    ],
    repository: Annotated[str, typer.Argument(help="Where on the hub: user/name.")],
    private: Annotated[
        bool, typer.Option("--private", help="A new repository is private.")
    ] = False,
    revision: Annotated[str | None, typer.Option(help="Branch to upload to. [main]")] = None,
    message: Annotated[str | None, typer.Option(help="What the commit says.")] = None,
    backbone: options.SavedBackbone = None,
) -> None:
    """Upload a saved classifier or a merged export, with its model card, to the Hugging Face hub.

    `hf auth login`, or HF_TOKEN, says who you are. `FewShotClassifier.from_pretrained("user/name")`
    and every command that takes a saved classifier read it from there.
    """
    from shotfit.errors import DataError

    if (model / "config.json").is_file() and (model / "model.safetensors").is_file():
        from shotfit.system.model_hub import upload

        print(upload(model, repository, private=private, revision=revision, message=message))
        return
    if not (model / "shotfit.json").is_file():
        raise DataError(f"{model} is no saved classifier and no merged export: nothing to upload.")
    from shotfit.apps.pretrained import confirmed
    from shotfit.classifier import FewShotClassifier

    given = confirmed(str(model), backbone)
    classifier = FewShotClassifier.from_pretrained(model, backbone=given)
    print(classifier.push_to_hub(repository, private=private, revision=revision, message=message))
