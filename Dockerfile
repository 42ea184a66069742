# SPDX-License-Identifier: Apache-2.0
# The image of drover-controller:
#
#   docker build -t drover-controller .
#
# The builder needs Go's module proxy; the result holds the one static binary and root certificates.
ARG GO_VERSION=1.26
FROM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -ldflags="-s -w" -o /drover-controller ./cmd/drover-controller

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /drover-controller /drover-controller
USER 65532:65532
ENTRYPOINT ["/drover-controller"]
