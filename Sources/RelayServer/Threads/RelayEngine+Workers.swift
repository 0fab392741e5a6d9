// Opens a relay's port: one socket per worker, and the kernel passes each packet to the worker that has its connection.
import Cryptography
import Logging
import MonotonicTime
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
        var server = QUICServerOptions(keys: configuration.transportKeys)
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
    func open(at address: SocketAddress, _ configuration: RelayServerConfiguration) throws(RelayServerError) {
        var transport = Self.transport(configuration)
        helpers = team(of: configuration.helpers)
        let count = exchange.workers
        let cores = cores(configuration)
        do throws(QUICError) {
            let first = try make(0, on: loop, at: address, transport, cores[0]) { [unowned self] in take($0) }
            workers = [first]
            do throws(SystemError) {
                try exchange.open(first, on: loop) { [unowned self, unowned first] mail in
                    if case .front(let report) = mail { take(report) } else { first.take(mail) }
                }
            } catch {
                throw QUICError.socket(error, during: "watching the workers' mail")
            }
            guard count > 1 else { return }
            let shared = endpoint.localAddress
            try endpoint.shareAddress()
            for number in 1..<count {
                transport.server?.worker = UInt16(number)
                workers.append(try hire(number, at: shared, transport, cores[number]))
            }
            try endpoint.steerByConnectionID(of: count, strangers: exchange.spread.isSpread ? .spread : .first)
        } catch {
            throw .listen("\(address)", error)
        }
    }

    /// The rules of each shard, before they are on their threads.
    private func cores(_ configuration: RelayServerConfiguration) -> [RelayCore] {
        let count = exchange.workers
        let census = RelayCensus()
        let parts = Dictionary(grouping: exchange.directory.configurations) { exchange.directory.shard(of: $0.id) ?? 0 }
        return (0..<count).map { shard in
            let channels = parts[shard] ?? []
            var core = RelayCore(
                channels: channels, limits: configuration.limits, timers: configuration.timers,
                roster: configuration.roster.part(of: channels.map(\.id)),
                acceptsPushes: configuration.acceptsPushes, web: configuration.webPlace,
                shard: .init(number: shard, count: count, census: census), startedAt: startedAt)
            core.places = configuration.places
            return core
        }
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

    /// A worker and its shard, on its loop.
    private func make(
        _ number: Int, on loop: EventLoop, at address: SocketAddress, _ transport: QUICConfiguration, _ core: RelayCore,
        tellFront: @escaping (RelayFrontReport) -> Void
    ) throws(QUICError) -> RelayWorker {
        let endpoint = try QUICEndpoint(
            loop: loop, bind: address, reusePort: number > 0, configuration: transport, logger: logger)
        endpoint.helpers = helpers
        let worker = RelayWorker(number, endpoint: endpoint, exchange, places: places, logger: logger)
        worker.adopt(RelayShard(core, of: worker, exchange, logger: logger, tellFront: tellFront))
        return worker
    }

    /// A worker with a loop of its own.
    private func hire(
        _ number: Int, at address: SocketAddress, _ transport: QUICConfiguration, _ core: RelayCore
    ) throws(QUICError) -> RelayWorker {
        let loop: EventLoop
        do throws(SystemError) {
            loop = try EventLoop(name: "relay-\(number)")
        } catch {
            throw QUICError.socket(error, during: "starting a thread for the relay")
        }
        let exchange = exchange
        let made = loop.runAndWait { () -> Result<RelayWorker, QUICError> in
            Result { () throws(QUICError) -> RelayWorker in
                let worker = try self.make(number, on: loop, at: address, transport, core) {
                    exchange.post(.front($0), to: 0)
                }
                do throws(SystemError) {
                    try exchange.open(worker, on: loop) { [unowned worker] in worker.take($0) }
                } catch {
                    worker.endpoint.close()
                    throw QUICError.socket(error, during: "watching a worker's mail")
                }
                return worker
            }
        }
        if case .failure = made { loop.stop() }
        return try made.get()
    }
}
