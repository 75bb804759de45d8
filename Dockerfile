# An exported classifier behind HTTP, in onnxruntime: neither torch nor transformers is in it.
#
#   docker build -t shotfit-serve .
#   docker run --read-only --tmpfs /tmp -p 8000:8000 -v "$PWD/pets-onnx:/model:ro" shotfit-serve
#
# What follows the name of the image are options of `shotfit serve`.

FROM python:3.12-slim-bookworm AS wheel
WORKDIR /build
COPY pyproject.toml README.md LICENSE CITATION.cff ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm
ENV PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
RUN useradd --system --uid 10001 --no-create-home shotfit
WORKDIR /install
COPY constraints.txt ./
COPY --from=wheel /wheels wheels
# All that serving an export imports. Without --no-deps the wheel would bring torch.
RUN pip install --no-cache-dir --constraint constraints.txt \
        numpy pillow tokenizers onnxruntime fastapi uvicorn python-multipart prometheus-client \
        typer rich pyyaml \
    && pip install --no-cache-dir --no-deps wheels/*.whl
USER 10001
WORKDIR /
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/ready')"]
ENTRYPOINT ["shotfit", "serve", "/model", "--host", "0.0.0.0", "--port", "8000"]
