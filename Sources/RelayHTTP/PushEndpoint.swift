// The HTTP endpoint that runs: TCP, TLS and HTTP/2 below, `PushResponder` above.
import Cryptography
import HummingbirdCore
import HummingbirdHTTP2
import Logging
import NIOCore
import NIOSSL
import RelayServer
import ServiceLifecycle

/// Takes pushes the way APNs does: `POST /3/device/<token>` over HTTP/2 and TLS, from clients with certificates.
///
/// It has one thread of its own, from `run` until that returns.
public struct PushEndpoint: Service {
    private let configuration: PushEndpointConfiguration
    private let logger: Logger
    private let channel: TimedServerChannel
    private let responder: PushResponder
    private let clients: Current<[PublicKeyPin: PushClient]>
    private let onListening: @Sendable (UInt16) async -> Void

    /// An endpoint that does not listen yet.
    ///
    /// - Parameters:
    ///   - onListening: Called once with the port, when pushes can come.
    ///   - deliver: Takes a push that is in order; `RelayServer.push`.
    /// - Throws: `PushEndpointError.certificate`.
    public init(
        configuration: PushEndpointConfiguration, logger: Logger,
        onListening: @escaping @Sendable (UInt16) async -> Void = { _ in },
        deliver: @escaping @Sendable (PushRequest) async -> PushVerdict
    ) throws(PushEndpointError) {
        self.configuration = configuration
        self.logger = logger
        self.onListening = onListening
        clients = Current(PushClient.byPin(configuration.clients))
        let limits = configuration.limits
        let responder = PushResponder(clients: clients, limits: limits, logger: logger, deliver: deliver)
        self.responder = responder
        let upgrade = try Self.upgrade(
            configuration.certificatePEM, configuration.privateKeyPEM, limits: limits, to: responder)
        channel = TimedServerChannel(
            upgrade: Current(upgrade), handshakeTime: limits.handshakeTime, strangerTime: limits.strangerTime,
            mayPush: { certificate in
                guard case .client = responder.sender(certificate) else { return false }
                return true
            })
    }

    private static func upgrade(
        _ certificatePEM: String, _ privateKeyPEM: String, limits: PushEndpointLimits, to responder: PushResponder
    ) throws(PushEndpointError) -> HTTP2UpgradeChannel {
        var transport = HTTP2UpgradeChannel.Configuration(
            idleTimeout: limits.idleTime,
            streamConfiguration: HTTP1Channel.Configuration(idleTimeout: TimeAmount(limits.requestTime)))
        transport.gracefulCloseTimeout = limits.closingTime
        do {
            return try HTTP2UpgradeChannel(
                tlsChannelConfiguration: TLSChannelConfiguration(
                    tlsConfiguration: tls(certificatePEM, privateKeyPEM, limits),
                    customVerificationCallback: { _, promise in
                        // TLS proves that the client has the certificate's key; whether that key may do anything is
                        // answered with a status that says so.
                        promise.succeed(.certificateVerified)
                    }), configuration: transport
            ) { request, writer, channel in
                try await responder.respond(request, writer, channel)
            }
        } catch {
            throw .certificate("\(error)")
        }
    }

    private static func tls(
        _ certificatePEM: String, _ privateKeyPEM: String, _ limits: PushEndpointLimits
    ) throws -> TLSConfiguration {
        var tls = try TLSConfiguration.server(certificatePEM, privateKeyPEM: privateKeyPEM)
        tls.trustRoots = .certificates([])
        // For a client that does not answer the goodbye.
        tls.shutdownTimeout = TimeAmount(limits.goodbyeTime)
        tls.certificateVerification = .optionalVerification
        return tls
    }

    /// A certificate of the server that has been read, and whose key fits.
    public struct Certificate: Sendable {
        fileprivate let upgrade: HTTP2UpgradeChannel
    }

    /// Reads a certificate of the server, with the intermediate ones after it, and its key, in PEM.
    ///
    /// - Throws: `PushEndpointError.certificate`.
    public func certificate(_ pem: String, privateKeyPEM: String) throws(PushEndpointError) -> Certificate {
        Certificate(upgrade: try Self.upgrade(pem, privateKeyPEM, limits: configuration.limits, to: responder))
    }

    /// Sets the server's certificate for new connections. Existing ones continue.
    public func setCertificate(_ certificate: Certificate) { channel.upgrade.set(certificate.upgrade) }

    /// From the next request on these may push, and nobody else.
    public func setClients(_ clients: [PushClient]) { self.clients.set(PushClient.byPin(clients)) }

    /// Takes pushes until the task is cancelled or the service group shuts down.
    ///
    /// - Throws: `ListenFailure`.
    public func run() async throws {
        let limits = configuration.limits
        try await HTTPListener.serve(
            channel, as: .init("pushes cannot be received", section: "push"), address: configuration.listenAddress,
            port: configuration.listenPort,
            admission: .init(
                connections: limits.connections, connectionsPerAddress: limits.connectionsPerAddress,
                silence: limits.silence),
            timeouts: .init(requestTime: nil, unreadTime: limits.requestTime, unreadBytes: limits.unreadBytes),
            logger: logger, listening: onListening)
    }
}
