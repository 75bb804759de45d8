"""What requests and answers look like, as OpenAPI describes them."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, model_validator

from shotfit.serve.answers import Question

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5E"
    "rkJggg=="
)
"""A PNG of one pixel."""

COVERAGE = (
    "Also answer a set of classes that holds the right one with this probability, on average over "
    "images like the shots (conformal prediction)."
)
REJECT = (
    "Also say whether the image is none of the classes, by a threshold that refuses at most this "
    "share of images of trained classes."
)


class JsonImage(BaseModel):
    """One image: its bytes in base64, or an address where the server allows that."""

    base64: str | None = None
    url: str | None = None
    name: str = "image"

    @model_validator(mode="after")
    def _one_of_both(self) -> "JsonImage":
        if (self.base64 is None) == (self.url is None):
            raise ValueError("an image has either base64 or url")
        return self


class JsonImages(BaseModel):
    """Images in JSON, and what is asked about them."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"images": [{"base64": PIXEL, "name": "dot.png"}], "top": 3},
                {
                    "images": [{"base64": PIXEL}, {"base64": PIXEL}],
                    "coverage": 0.9,
                    "reject": 0.05,
                },
            ]
        }
    )
    images: list[JsonImage] = Field(min_length=1)
    top: int = Field(1, ge=1, description="Answers for each image.")
    coverage: float | None = Field(None, gt=0, lt=1, description=COVERAGE)
    reject: float | None = Field(None, gt=0, lt=1, description=REJECT)

    @property
    def question(self) -> Question:
        """What is asked."""
        return Question(self.top, self.coverage, self.reject)


def question(
    top: Annotated[int, Query(ge=1, description="Answers for each image.")] = 1,
    coverage: Annotated[float | None, Query(gt=0, lt=1, description=COVERAGE)] = None,
    reject: Annotated[float | None, Query(gt=0, lt=1, description=REJECT)] = None,
) -> Question:
    """What is asked in the address of a request."""
    return Question(top, coverage, reject)


class Names(BaseModel):
    """Names of classes."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"names": ["zebra", "polar bear"]}]})
    names: list[str] = Field(min_length=1)


class Answer(BaseModel):
    """A class and its probability."""

    model_config = ConfigDict(populate_by_name=True)
    name: str = Field(alias="class", examples=["cat"])
    probability: float = Field(examples=[0.93])


class Result(BaseModel):
    """What is said of an image; `set` and `refused` as far as they were asked for. Beside others,
    an image that cannot be answered has an `error` and no answers."""

    image: str = Field(examples=["photo.jpg"])
    answers: list[Answer] = Field(description="The likeliest classes, most likely first.")
    set: list[Answer] | None = Field(
        None, description="The classes of the prediction set, most likely first; never none."
    )
    refused: bool | None = Field(
        None, description="Whether the image is none of the classes; `answers` are its nearest."
    )
    error: str | None = Field(None, description="Why there is no answer.")


class Predictions(BaseModel):
    """What images are, by which version of the classes."""

    version: int = Field(examples=[3])
    results: list[Result]


class KnownClass(BaseModel):
    """A class, and whether it was trained on images or is known by its name."""

    name: str = Field(examples=["zebra"])
    known_by: str = Field(examples=["name"])


class Classes(BaseModel):
    """The classes that are answered with."""

    version: int = Field(examples=[4])
    classes: list[KnownClass]


class Problem(BaseModel):
    """Why a request was not answered."""

    error: str = Field(examples=["At most 32 images at once, got 40."])


CAT, DOG = {"class": "cat", "probability": 0.71}, {"class": "dog", "probability": 0.24}
EXAMPLES: dict[str, Any] = {
    "one image": {
        "value": {"version": 1, "results": [{"image": "photo.jpg", "answers": [CAT]}]},
    },
    "coverage=0.9 and reject=0.05": {
        "value": {
            "version": 1,
            "results": [
                {"image": "a.jpg", "answers": [CAT], "set": [CAT, DOG], "refused": False},
                {"image": "b.jpg", "answers": [DOG], "set": [DOG], "refused": True},
            ],
        },
    },
}
