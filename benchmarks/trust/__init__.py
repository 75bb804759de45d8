"""Can answers be trusted? Levels, probabilities, refusals, sets and expected accuracy, measured."""
