"""The eleven benchmark datasets of the paper: facts, prompts, what is on the disk, their splits."""
