// Links of a cluster: one for a channel that another relay serves is passed on there.
import Glibc
import Logging
import MonotonicTime
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import NIOWebSocket
import RelayHTTP
import RelayProtocol
import RelayServer
import Synchronization

/// Knows where the links of each share go, and takes them there.
///
/// The relays prove their key inside the link (docs/relay-protocol.md, section 21), so the certificate of the other relay does not matter: whoever is
/// between can only end the link.
final class WebPassages: Sendable {
    private let places = Mutex<[WebLinkAddress?]>([])
    private let counted = Mutex(LinkPassages())
    private let complainedAt = Mutex<Instant?>(nil)
    private let worker: RelayWebWorker
    private let limits: WebEndpointLimits
    private let tls: NIOSSLContext?
    private let logger: Logger

    private static let connectTime: TimeAmount = .seconds(5)
    /// What waits here overtakes nothing, so little may: a quarter of a second of speech. The kernel takes twice as much.
    private static let receiveBuffer = WebLinkLimits.kernelBacklogBytes
    private static let complaintInterval: Duration = .seconds(60)

    init(_ worker: RelayWebWorker, _ limits: WebEndpointLimits, logger: Logger) {
        self.worker = worker
        self.limits = limits
        self.logger = logger
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.certificateVerification = .none
        configuration.applicationProtocols = ["http/1.1"]
        tls = try? NIOSSLContext(configuration: configuration)
    }

    /// Where the links of the shares go, in their order; nil: they stay here.
    func set(_ places: [WebLinkAddress?]) { self.places.withLock { $0 = places } }

    /// Where a link is to go; nil: it stays here. One that was passed on once stays, whatever the other relay has believed.
    func place(for target: WebLinkTarget) -> WebLinkAddress? {
        guard !target.isPassedOn, let share = target.share else { return nil }
        return places.withLock { $0.indices.contains(share) ? $0[share] : nil }
    }

    /// What was counted.
    var figures: LinkPassages { counted.withLock { $0 } }

    /// Another relay has passed this WebSocket on. On the thread of its channel.
    func noteTaken(_ channel: any Channel) {
        counted.withLock {
            $0.begunFrom += 1
            $0.openFrom += 1
        }
        channel.closeFuture.whenComplete { [self] _ in counted.withLock { $0.openFrom -= 1 } }
    }

    /// Takes the WebSocket of a client there. On the thread of its channel.
    func add(to channel: any Channel, _ target: WebLinkTarget, at address: WebLinkAddress) throws {
        let loop = channel.eventLoop
        let time = TimeAmount(limits.closingTime)
        let worker = worker
        let opening = Opening()
        counted.withLock { $0.begunTo += 1 }
        let near = WebPassage(isClient: false, closingTime: time) { [self] in
            worker.keep(opening, end: nil)
            if opening.isOpen { counted.withLock { $0.openTo -= 1 } }
            opening.end()
        }
        worker.keep(opening) {
            let code = WebLinkLimits.closeCodeBase + UInt16(RelayCloseCode.goingDown.rawValue)
            near.end(WebSocketErrorCode(codeNumber: Int(code)), RelayWebWorker.goingDown)
        }
        try channel.pipeline.syncOperations.addHandler(near)
        let ends = NIOLoopBound(
            (near: near, far: WebPassage(isClient: true, closingTime: time), opening: opening), eventLoop: loop)
        let timer = loop.scheduleTask(in: TimeAmount(limits.passageTime)) { [weak self] in
            guard !ends.value.opening.isOver else { return }
            self?.fail(ends.value.near, address, "it does not answer")
        }
        let opened = connect(
            target, address, on: loop,
            began: { ends.value.opening.began($0) },
            add: { try $0.pipeline.syncOperations.addHandler(ends.value.far) })
        opened.whenComplete { [weak self] result in
            timer.cancel()
            // Its client has gone meanwhile, or was told that this takes too long.
            guard !ends.value.opening.isOver else { return }
            switch result {
            case .success:
                ends.value.opening.isOver = true
                ends.value.opening.isOpen = true
                self?.counted.withLock { $0.openTo += 1 }
                ends.value.near.join(ends.value.far)
            case .failure(let error): self?.fail(ends.value.near, address, "\(error)")
            }
        }
    }

    /// A WebSocket to the other relay that is not open yet. It names the passage for the worker.
    private final class Opening {
        /// Nil until the other relay's name is resolved.
        private var channel: (any Channel)?
        /// Whether it is open, or is not to be any more.
        var isOver = false
        /// Whether it was open.
        var isOpen = false

        /// The connection begins.
        func began(_ channel: any Channel) {
            self.channel = channel
            if isOver { channel.close(promise: nil) }
        }

        /// Nobody needs it any more.
        func end() {
            guard !isOver else { return }
            isOver = true
            channel?.close(promise: nil)
        }
    }

    private func fail(_ near: WebPassage, _ address: WebLinkAddress, _ why: String) {
        counted.withLock { $0.failedTo += 1 }
        // Its client comes again, and this relay knows better then.
        near.end(WebSocketErrorCode(codeNumber: 1_013), "the relay that serves this channel cannot be reached")
        let isDue = complainedAt.withLock { at in
            if let last = at, .now - last < Self.complaintInterval { return false }
            at = .now
            return true
        }
        guard isDue else { return }
        logger.warning(
            "a link over TLS cannot be passed on to the relay that serves its channel: see whether relays reach each other there",
            metadata: ["relay": "\(address)", "why": "\(why)"])
    }

    /// Opens a WebSocket at the other relay.
    ///
    /// - Parameters:
    ///   - began: Gets its channel, which is to be closed if it does not open.
    ///   - add: Adds what stands behind it.
    private func connect(
        _ target: WebLinkTarget, _ address: WebLinkAddress, on loop: any EventLoop,
        began: @escaping @Sendable (any Channel) -> Void, add: @escaping @Sendable (any Channel) throws -> Void
    ) -> EventLoopFuture<Void> {
        if address.hasTLS, tls == nil { return loop.makeFailedFuture(Failure(description: "TLS cannot be used")) }
        let limits = limits
        let opened = loop.makePromise(of: Void.self)
        let upgrader = NIOTypedWebSocketClientUpgrader<Void>(
            maxFrameSize: WebLinkLimits.messageBytes, enableAutomaticErrorHandling: false
        ) { channel, _ in
            channel.eventLoop.makeCompletedFuture {
                try WebChannel.addFrames(to: channel, ofClient: false, limits)
                try add(channel)
            }
        }
        var onward = target
        onward.isPassedOn = true
        let request = HTTPRequestHead(
            version: .http1_1, method: .GET, uri: onward.text,
            headers: [
                "Host": address.place.description, "Content-Length": "0",
                "Sec-WebSocket-Protocol": WebLinkLimits.subprotocol,
            ])
        let upgrade = NIOTypedHTTPClientUpgradeConfiguration(
            upgradeRequestHead: request, upgraders: [upgrader],
            notUpgradingCompletionHandler: { channel in
                channel.close(promise: nil)
                return channel.eventLoop.makeFailedFuture(Failure(description: "what is there takes no links"))
            })
        let tls = address.hasTLS ? tls : nil
        ClientBootstrap(group: loop).connectTimeout(Self.connectTime)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(
                .tcpOption(.init(rawValue: TCP_NOTSENT_LOWAT)), value: .init(WebLinkLimits.kernelBacklogBytes)
            )
            .channelOption(.socketOption(.so_rcvbuf), value: .init(Self.receiveBuffer))
            .channelOption(.writeBufferWaterMark, value: .init(low: limits.writeBuffer / 4, high: limits.writeBuffer))
            .channelInitializer { channel in
                began(channel)
                return channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let tls {
                        try pipeline.addHandler(NIOSSLClientHandler(context: tls, serverHostname: address.serverName))
                    }
                    try pipeline.configureUpgradableHTTPClientPipeline(
                        configuration: .init(upgradeConfiguration: upgrade)
                    ).cascade(to: opened)
                }
            }
            .connect(host: address.place.host, port: Int(address.place.port)).whenFailure { opened.fail($0) }
        return opened.futureResult
    }

    /// Why there is no link.
    private struct Failure: Error, CustomStringConvertible {
        let description: String
    }
}

extension WebLinkAddress {
    /// The name for TLS; nil: it is an address.
    fileprivate var serverName: String? {
        (try? NIOCore.SocketAddress(ipAddress: place.host, port: 0)) == nil ? place.host : nil
    }
}
