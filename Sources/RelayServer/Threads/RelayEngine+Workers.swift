// Opens a relay's port: one socket per worker, and the kernel passes each packet to the worker that has its connection.
import Cryptography
import Logging
import QUIC
import Reactor
import RelayProtocol

extension RelayEngine {
    /// The number of a talker's packets that are acknowledged at once. Fewer are acknowledged after 25 ms, which for a
    /// talker with a packet every 10 ms means four acknowledgements for ten packets or so. A gap is acknowledged at
    /// once.
    private static let acknowledgementThreshold = 10

    /// Of the socket, bytes each way, as far as the kernel lets it (net.core.rmem_max): what thousands say at one instant.
    private static let socketBuffer = 4 << 20

    /// How the transport is set up for a relay.
    static func transport(_ configuration: RelayServerConfiguration) -> QUICConfiguration {
        var server = QUICServerOptions(keys: configuration.transportKeys.keys)
        server.maximumConnections = configuration.limits.connections + configuration.limits.connectionsRefused
        server.maximumConnectionsPerAddress = configuration.limits.connectionsPerAddress
        server.handshakesPerSecond = configuration.limits.handshakesPerSecond
        server.group = QUICServerGroup(server)
        var transport = QUICConfiguration(
            applicationProtocol: RelayProtocolLimits.applicationProtocol,
            identity: QUICIdentity(
                certificate: configuration.identity.certificateDER, privateKey: configuration.identity.privateKeyDER,
                encoding: .der),
            server: server)
        transport.maximumPeerStreams = 1
        // QUIC closes a connection for a datagram that is longer than it was told; the relay only drops it.
        transport.maximumDatagram = QUICConfiguration.datagramMaximum
        transport.acknowledgementThreshold = acknowledgementThreshold
        transport.socketBuffer = socketBuffer
        return transport
    }

    /// Makes the workers. A worker that is made has its connections from the first packet on, so it is ready for them before its loop
    /// sees one.
    func open(
        at address: SocketAddress, workers count: Int, _ configuration: RelayServerConfiguration
    ) throws(RelayServerError) {
        var transport = Self.transport(configuration)
        helpers = team(of: configuration.helpers)
        do throws(QUICError) {
            let endpoint = try QUICEndpoint(loop: loop, bind: address, configuration: transport, logger: logger)
            endpoint.helpers = helpers
            workers = [
                RelayWorker(
                    0, endpoint: endpoint, numbers: numbers, places: places, limits: limits, logger: logger
                ) { [unowned self] report in
                    take(report)
                    return true
                }
            ]
            guard let reports else { return }
            do throws(SystemError) {
                try reports.open(on: loop) { [unowned self] in take($0) }
            } catch {
                throw QUICError.socket(error, during: "watching the workers' mail")
            }
            guard count > 1 else { return }
            let shared = endpoint.localAddress
            try endpoint.shareAddress()
            for number in 1..<count {
                transport.server?.worker = UInt16(number)
                workers.append(try hire(number, at: shared, transport, reports))
            }
            try endpoint.steerByConnectionID()
        } catch {
            throw .listen("\(address)", error)
        }
    }

    /// Connects the rules and who has the connections over TLS.
    func attach(_ web: RelayWebWorker, as number: Int, _ reports: Mailbox<RelayWorkerReport>) {
        web.attach(
            .init(
                number: number, numbers: numbers, limits: limits,
                reports: { reports.post($0, mayBeLost: $0.mayBeLost) },
                progress: { (reports.postedCount, reports.handledCount) }))
    }

    private func team(of count: Int) -> ThreadPool? {
        guard count > 0 else { return nil }
        do {
            return try ThreadPool(name: "relay-help", size: min(count, RelayServerConfiguration.helpersMaximum))
        } catch {
            logger.warning("the relay runs without helper threads", metadata: ["why": "\(error)"])
            return nil
        }
    }

    /// A worker with a loop of its own.
    private func hire(
        _ number: Int, at address: SocketAddress, _ transport: QUICConfiguration, _ reports: Mailbox<RelayWorkerReport>
    ) throws(QUICError) -> RelayWorker {
        let (numbers, places, limits, logger, helpers) = (numbers, places, limits, logger, helpers)
        let loop: EventLoop
        let orders: Mailbox<RelayWorkerOrder>
        do throws(SystemError) {
            loop = try EventLoop(name: "relay-\(number)")
            orders = try Mailbox()
        } catch {
            throw QUICError.socket(error, during: "starting a thread for the relay")
        }
        let made = loop.runAndWait { () -> Result<RelayWorker, QUICError> in
            Result { () throws(QUICError) -> RelayWorker in
                let endpoint = try QUICEndpoint(
                    loop: loop, bind: address, reusePort: true, configuration: transport, logger: logger)
                endpoint.helpers = helpers
                let worker = RelayWorker(
                    number, endpoint: endpoint, numbers: numbers, orders: orders, places: places, limits: limits,
                    logger: logger
                ) { reports.post($0, mayBeLost: $0.mayBeLost) }
                worker.watch(reports)
                do throws(SystemError) {
                    try orders.open(on: loop) { [unowned worker] in worker.carryOut($0) }
                } catch {
                    endpoint.close()
                    throw QUICError.socket(error, during: "watching a worker's mail")
                }
                return worker
            }
        }
        if case .failure = made { loop.stop() }
        return try made.get()
    }
}
