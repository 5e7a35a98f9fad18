# A perdure worker. It serves the app that is named when it starts: docker run IMAGE worker MODULE:APP
#
# To put an app of your own into an image:
#
#     FROM perdure-worker
#     COPY my_module.py /app/
#     CMD ["worker", "my_module:app"]

FROM python:3.11-slim AS build
WORKDIR /source
RUN python -m venv /opt/perdure
COPY requirements/image.txt requirements/
RUN /opt/perdure/bin/pip install --no-cache-dir --require-hashes --requirement requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY workflows workflows
COPY activities activities
COPY worker worker
RUN /opt/perdure/bin/python -m hatchling build -t wheel \
    && /opt/perdure/bin/pip install --no-cache-dir --no-deps dist/*.whl

FROM python:3.11-slim
RUN useradd --system --no-create-home --shell /usr/sbin/nologin perdure \
    && install --directory --owner=perdure /data
COPY --from=build /opt/perdure /opt/perdure
ENV PATH=/opt/perdure/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PERDURE_HOME=/data
WORKDIR /app
USER perdure
VOLUME /data
ENTRYPOINT ["perdure"]
CMD ["--help"]
