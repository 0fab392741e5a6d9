// The connections of a port, as `ConnectionAdmission` rules them.
import Glibc
import HummingbirdCore
import Logging
import MonotonicTime
import NIOCore
import Synchronization

/// Closes the connections that have to go, and at the end all of them.
final class ConnectionGate: Sendable {
    private struct State {
        var admission: ConnectionAdmission
        var channels: [ConnectionAdmission.ID: any Channel] = [:]
        var listener: (any Channel)?
        var isOver = false
    }

    private let state: Mutex<State>
    /// Addresses, as text, of reverse proxies.
    private let proxies: Set<String>

    init(_ limits: ConnectionAdmission.Limits, proxies: Set<String> = []) {
        state = Mutex(State(admission: ConnectionAdmission(limits)))
        self.proxies = proxies
    }

    /// Lets a new connection in, in the place of another one if there are too many; nil: it is not let in.
    func admit(_ channel: any Channel) -> ConnectionAdmission.ID? {
        let (id, dropped): (ConnectionAdmission.ID?, (any Channel)?) = state.withLock { state in
            guard !state.isOver else { return (nil, nil) }
            switch state.admission.accept(from: address(of: channel), at: .now) {
            case .refuse: return (nil, nil)
            case .admit(let id, let dropping):
                state.channels[id] = channel
                return (id, dropping.flatMap { state.channels.removeValue(forKey: $0) })
            }
        }
        dropped?.close(mode: .all, promise: nil)
        return id
    }

    func proved(_ id: ConnectionAdmission.ID) { state.withLock { $0.admission.proved(id) } }

    func read(_ id: ConnectionAdmission.ID) { state.withLock { $0.admission.read(id, at: .now) } }

    func closed(_ id: ConnectionAdmission.ID) {
        state.withLock {
            $0.admission.closed(id)
            $0.channels[id] = nil
        }
    }

    /// The port is open.
    func opened(_ listener: any Channel) {
        let isOver = state.withLock { state in
            state.listener = listener
            return state.isOver
        }
        if isOver { listener.close(mode: .all, promise: nil) }
    }

    /// Closes the port and all connections.
    func end() {
        let channels = state.withLock { state in
            state.isOver = true
            return Array(state.channels.values) + (state.listener.map { [$0] } ?? [])
        }
        for channel in channels { channel.close(mode: .all, promise: nil) }
    }

    /// Whoever has one address of an IPv6 network can have all of its /64. Nil: a proxy.
    private func address(of channel: any Channel) -> String? {
        guard let address = channel.remoteAddress else { return "" }
        let text = address.ipAddress ?? ""
        let plain = text.hasPrefix("::ffff:") ? String(text.dropFirst(7)) : text
        if proxies.contains(plain) { return nil }
        var bytes = [UInt8](repeating: 0, count: 16)
        guard case .v6 = address, inet_pton(AF_INET6, text, &bytes) == 1 else { return text }
        // An IPv4 address as a socket for both sees it is told apart by its last four bytes.
        let isMapped = bytes.prefix(10).allSatisfy { $0 == 0 } && bytes[10] == 0xFF && bytes[11] == 0xFF
        return (isMapped ? bytes.suffix(4) : bytes.prefix(8)).map { String($0) }.joined(separator: ".")
    }
}

/// A server's connections behind a gate.
struct AdmittedChannel<Base: ServerChildChannel>: ServerChildChannel {
    let base: Base
    let gate: ConnectionGate
    let timeouts: ConnectionTimeouts
    /// Bytes that the kernel keeps for a peer that does not read.
    static var sendBufferBytes: Int { 131_072 }

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Base.Value> {
        let id = gate.admit(channel)
        let prepared = base.setup(channel: channel, logger: logger)
        guard let id else {
            // Not from within: the server takes a setup that fails for a failure of its own.
            channel.eventLoop.execute { channel.close(mode: .all, promise: nil) }
            return prepared
        }
        do {
            let watch = ConnectionWatch(id, gate: gate, timeouts: timeouts)
            // Only a bound: a connection that is closed already needs none.
            channel.setOption(.socketOption(.so_sndbuf), value: .init(Self.sendBufferBytes)).whenFailure { _ in }
            try channel.pipeline.syncOperations.addHandler(watch, position: .first)
        } catch {
            gate.closed(id)
        }
        return prepared
    }

    func handle(value: Base.Value, logger: Logger) async { await base.handle(value: value, logger: logger) }
}
