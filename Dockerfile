# Serves an index of images from an exported model: no torch, no compiler, no root.
#
#   secondsight export runs/photos -o photos.onnx
#   docker build -t secondsight .
#   docker run -p 8000:8000 -e SECONDSIGHT_TOKEN=… -v "$PWD/photos.index:/index" -v "$PWD/photos:$PWD/photos:ro" \
#     -v "$PWD/photos.onnx:/model.onnx:ro" secondsight
FROM python:3.11-slim AS build
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.11-slim
COPY --from=build /wheels /wheels
# What serving needs, and not what training needs: secondsight itself is installed without its dependencies.
RUN pip install --no-cache-dir numpy pillow onnxruntime faiss-cpu filelock jaxtyping jinja2 lazy_loader pydantic rich \
      safetensors scipy simplejpeg tomli-w typer xxhash fastapi uvicorn python-multipart prometheus-client \
 && pip install --no-cache-dir --no-deps /wheels/*.whl \
 && useradd --system --no-create-home secondsight
USER secondsight
ENV OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["secondsight", "serve", "/index", "--model", "/model.onnx", "--host", "0.0.0.0", "--port", "8000"]
