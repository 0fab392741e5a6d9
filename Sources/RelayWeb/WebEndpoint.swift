// The web endpoint that runs: links over TLS, and the page by which a browser is a member.
import Cryptography
import HummingbirdCore
import Logging
import NIOCore
import NIOPosix
import NIOSSL
import RelayHTTP
import RelayProtocol
import RelayServer
import ServiceLifecycle

/// Takes links over TLS for a relay (docs/relay-protocol.md, section 21), and serves the page.
///
/// It has one thread of its own, which ends with the program.
public struct WebEndpoint: Service {
    /// Has the connections; give it to the relay as `RelayServerConfiguration.web`.
    public let worker: RelayWebWorker
    private let configuration: WebEndpointConfiguration
    private let group: MultiThreadedEventLoopGroup
    private let certificate: Current<NIOSSLContext?>
    private let page: WebPage
    private let passages: WebPassages
    private let logger: Logger
    private var onListening: @Sendable (UInt16) async -> Void = { _ in }

    /// An endpoint that does not listen yet.
    ///
    /// - Parameters:
    ///   - identity: The relay's key, by which clients know it.
    ///   - page: The files of the page by their names; nil: those that are built in.
    /// - Throws: `WebEndpointError.certificate`, `.relayKey`.
    public init(
        configuration: WebEndpointConfiguration, identity: Identity, logger: Logger,
        page: [String: [UInt8]]? = nil
    ) throws(WebEndpointError) {
        self.configuration = configuration
        self.logger = logger
        self.page = WebPage(page ?? WebPage.builtIn)
        certificate = Current(
            try configuration.certificate.map { (pem, key) throws(WebEndpointError) in
                try Self.certificate(pem, privateKeyPEM: key).context
            })
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        self.group = group
        let loop = group.next()
        do {
            worker = try RelayWebWorker(identity: identity, logger: logger) { work in loop.execute(work) }
        } catch {
            throw .relayKey("\(error)")
        }
        passages = WebPassages(worker, configuration.limits, logger: logger)
    }

    /// In a cluster: where links go whose channel another relay serves, by the number of its share; nil: they stay.
    public func setPlaces(_ places: [WebLinkAddress?]) { passages.set(places) }

    /// What was counted of links that relays of a cluster pass on to each other.
    public var passedOn: LinkPassages { passages.figures }

    /// The same endpoint, whose `run` calls `handler` once with the port.
    public func listening(_ handler: @escaping @Sendable (UInt16) async -> Void) -> WebEndpoint {
        var copy = self
        copy.onListening = handler
        return copy
    }

    /// A certificate that has been read, and whose key fits.
    public struct Certificate: Sendable {
        fileprivate let context: NIOSSLContext
    }

    /// Reads a certificate, with the intermediate ones after it, and its key, in PEM.
    ///
    /// - Throws: `WebEndpointError.certificate`.
    public static func certificate(_ pem: String, privateKeyPEM: String) throws(WebEndpointError) -> Certificate {
        do {
            var tls = try TLSConfiguration.server(pem, privateKeyPEM: privateKeyPEM)
            tls.applicationProtocols = ["http/1.1"]
            return Certificate(context: try NIOSSLContext(configuration: tls))
        } catch {
            throw .certificate("\(error)")
        }
    }

    /// Sets the certificate for new connections. Existing ones continue.
    public func setCertificate(_ certificate: Certificate) { self.certificate.set(certificate.context) }

    /// Serves until the task is cancelled or the service group shuts down.
    ///
    /// - Throws: `ListenFailure`.
    public func run() async throws {
        let limits = configuration.limits
        let channel = WebChannel(
            certificate: certificate, rules: WebRequest(origins: configuration.origins, page: page), worker: worker,
            passages: passages, limits: limits)
        try await HTTPListener.serve(
            channel, as: .init("links over TLS cannot be taken", section: "web"), address: configuration.listenAddress,
            port: configuration.listenPort,
            admission: .init(
                connections: limits.connections, connectionsPerAddress: limits.connectionsPerAddress,
                silence: limits.silence), proxies: configuration.proxies,
            timeouts: .init(requestTime: nil, unreadTime: limits.unreadTime, unreadBytes: limits.unreadBytes),
            on: group, logger: logger, listening: onListening)
    }
}
