// The endpoint that [web] of pttrelay.toml describes, with its certificate.
import Cryptography
import Logging
import RelayServer
import RelayWeb
import Settings

extension WebSettings {
    /// What the endpoint is started with.
    func endpoint(_ state: RelayState, _ limits: RelayLimits, logger: Logger) throws -> WebEndpointConfiguration {
        var result = WebEndpointConfiguration(
            listenAddress: listen.address, listenPort: listen.port, certificate: try certificate(state, logger: logger))
        result.origins = Set(origins)
        result.proxies = Set(proxies)
        result.limits = WebEndpointLimits(limits)
        if hasTLS, files == nil {
            logger.notice(
                """
                links over TLS come in under a certificate that the relay made: pttd accepts it, browsers do not; \
                for browsers, name a certificate in [web]
                """)
        }
        return result
    }

    /// The certificate with those after it, and its key, in PEM: from the files that are named, or the relay's own; nil without TLS.
    func certificate(_ state: RelayState, logger: Logger) throws -> (pem: String, privateKeyPEM: String)? {
        hasTLS ? try PushSettings.certificate(files, listen, state, logger) : nil
    }
}
