# docker build -t nkilab .
# docker run --rm -v "$PWD":/kernels nkilab check softmax.py:softmax --arg 'f32[256,1000]'
FROM python:3.12-slim
WORKDIR /opt/nkilab
COPY pyproject.toml README.md LICENSE ./
COPY docs/differences.md docs/
COPY src src
RUN python -m pip install --no-cache-dir .
# compiled code is kept in a folder of the user's, which nobody else may write
RUN useradd --create-home kernels
USER kernels
WORKDIR /kernels
ENTRYPOINT ["nkilab"]
CMD ["--help"]
