"""Every case of the benchmark by name, in the order in which they are measured and shown."""

from speed.cases import (
    accelerator,
    compiling,
    embedded,
    first_stage,
    images,
    inference,
    scaling,
    second_stage,
)

CASES = {
    case.name: case
    for module in (
        first_stage,
        second_stage,
        inference,
        images,
        embedded,
        scaling,
        compiling,
        accelerator,
    )
    for case in module.CASES
}
