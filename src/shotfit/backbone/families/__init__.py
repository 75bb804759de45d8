"""One file a model family, named as transformers names the model type.

Each has `towers(model, tokenizer)` and `tokenize(tokenizer, texts)`.
"""
