"""ShotFit: two-stage few-shot adaptation of CLIP-like models."""
