// Where the Gateway API's definitions in crates/external/crds come from: only files are taken, nothing is built.
module kaos.invalid/gateway-api

go 1.26.0

require sigs.k8s.io/gateway-api v1.6.3
