"""shotfit env"""

import json

from shotfit.apps import options

EXAMPLES = (
    "shotfit env",
    "shotfit env --json",
)


def env(as_json: options.Json = False) -> None:
    """Versions and hardware, for bug reports."""
    from shotfit.experiment import environment

    facts = environment()
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        print(f"{name:<14}{value}")
