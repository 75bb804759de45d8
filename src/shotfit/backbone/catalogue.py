"""Well-known checkpoints on the Hugging Face hub that ShotFit adapts."""

KNOWN = (
    ("openai/clip-vit-base-patch32", "clip", 224, 32, 512),
    ("openai/clip-vit-base-patch16", "clip", 224, 16, 512),
    ("openai/clip-vit-large-patch14", "clip", 224, 14, 768),
    ("openai/clip-vit-large-patch14-336", "clip", 336, 14, 768),
    ("laion/CLIP-ViT-B-32-laion2B-s34B-b79K", "clip", 224, 32, 512),
    ("laion/CLIP-ViT-L-14-laion2B-s32B-b82K", "clip", 224, 14, 768),
    ("laion/CLIP-ViT-H-14-laion2B-s32B-b79K", "clip", 224, 14, 1024),
    ("facebook/metaclip-b32-400m", "clip", 224, 32, 512),
    ("facebook/metaclip-b16-400m", "clip", 224, 16, 512),
    ("google/siglip-base-patch16-224", "siglip", 224, 16, 768),
    ("google/siglip-large-patch16-256", "siglip", 256, 16, 1024),
    ("google/siglip-so400m-patch14-384", "siglip", 384, 14, 1152),
    ("google/siglip2-base-patch16-224", "siglip", 224, 16, 768),
    ("google/siglip2-large-patch16-256", "siglip", 256, 16, 1024),
    ("google/siglip2-so400m-patch14-384", "siglip", 384, 14, 1152),
)
"""Name, family, image side and patch in pixels, dimension of the joint space."""

KNOWN_NAMES = frozenset(name for name, *_ in KNOWN)

PAPERS = {
    "ViT-B/32": "openai/clip-vit-base-patch32",
    "ViT-B/16": "openai/clip-vit-base-patch16",
    "ViT-L/14": "openai/clip-vit-large-patch14",
    "ViT-L/14@336px": "openai/clip-vit-large-patch14-336",
}
"""What papers and OpenAI's code call the models, and where those are on the hub."""


def hub_id(name: str) -> str:
    """Where a model lies that is named as papers name it (any case); other names as they are."""
    found = {paper.lower(): there for paper, there in PAPERS.items()}
    return found.get(name.lower(), name)
