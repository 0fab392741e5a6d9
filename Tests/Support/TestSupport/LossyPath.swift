// A bad stretch of network on loopback for tests with real sockets: loss, delay, jitter, and black-outs on command.
import Glibc
import Synchronization

/// Forwards UDP packets between whoever sends to `port` and a server on 127.0.0.1. Each client gets a socket of its own
/// towards the server. It has a thread of its own and needs no event loop.
public final class LossyPath: Sendable {
    /// What happens to the packets of one direction.
    public struct Conditions: Sendable, Equatable {
        /// Of a hundred packets, so many do not arrive.
        public var lossPercent: Int
        /// 0: each packet is lost or not for itself. Otherwise losses come in bursts (Gilbert-Elliott): the way is bad for so many
        /// milliseconds on average, and everything is lost meanwhile.
        public var badMilliseconds: Int
        /// Every packet is late by this, in milliseconds…
        public var delayMilliseconds: Int
        /// …and by up to this more, each by its own amount, so that they overtake each other.
        public var jitterMilliseconds: Int
        /// Nothing arrives.
        public var isBlackedOut: Bool

        /// A path that does nothing to packets but what is named.
        public init(
            lossPercent: Int = 0, badMilliseconds: Int = 0, delayMilliseconds: Int = 0, jitterMilliseconds: Int = 0,
            isBlackedOut: Bool = false
        ) {
            self.lossPercent = lossPercent
            self.badMilliseconds = badMilliseconds
            self.delayMilliseconds = delayMilliseconds
            self.jitterMilliseconds = jitterMilliseconds
            self.isBlackedOut = isBlackedOut
        }
    }

    /// A way through the path.
    public enum Direction: Sendable { case toServer, toClient }

    /// Packets so far.
    public struct Counts: Sendable, Equatable {
        /// Packets that were passed on.
        public var passed = 0
        /// Packets that were lost.
        public var lost = 0
    }

    private struct State {
        var conditions: [Direction: Conditions]
        /// Whether the way is bad now, and until when, in milliseconds.
        var weather: [Direction: (isBad: Bool, until: Double)] = [:]
        var counts: [Direction: Counts] = [.toServer: Counts(), .toClient: Counts()]
        var random: SeededGenerator
        var isStopped = false

        /// Whether a packet of this moment is lost.
        mutating func loses(_ direction: Direction, _ conditions: Conditions, at now: Int64) -> Bool {
            if conditions.isBlackedOut { return true }
            let share = Double(conditions.lossPercent) / 100
            guard conditions.badMilliseconds > 0, share > 0, share < 1 else {
                return random.chance(conditions.lossPercent)
            }
            var (isBad, until) = weather[direction] ?? (false, Double(now))
            while until <= Double(now) {
                isBad.toggle()
                let bad = Double(conditions.badMilliseconds)
                let mean = isBad ? bad : bad * (1 - share) / share
                until += -mean * log(1 - Double.random(in: 0..<1, using: &random))
            }
            weather[direction] = (isBad, until)
            return isBad
        }
    }

    /// Where clients send to, on 127.0.0.1.
    public let port: UInt16
    private let server: UInt16
    private let front: Int32
    private let state: Mutex<State>

    /// The path could not be made: the error number.
    public struct Failure: Error {
        /// As of errno(3).
        public let errno: Int32
    }

    /// A path to the server at `port` of 127.0.0.1.
    ///
    /// - Parameters:
    ///   - toServer: What happens on the way there.
    ///   - toClient: What happens on the way back.
    ///   - seed: Decides which packets are lost; print it.
    public init(
        to port: UInt16, toServer: Conditions = Conditions(), toClient: Conditions = Conditions(), seed: UInt64
    ) throws {
        server = port
        (front, self.port) = try Self.socket()
        state = Mutex(
            State(conditions: [.toServer: toServer, .toClient: toClient], random: SeededGenerator(seed: seed)))
        var thread = pthread_t()
        let status = pthread_create(
            &thread, nil,
            { argument in
                guard let argument else { return nil }
                Unmanaged<LossyPath>.fromOpaque(argument).takeRetainedValue().run()
                return nil
            }, Unmanaged.passRetained(self).toOpaque())
        guard status == 0 else {
            Unmanaged.passUnretained(self).release()
            close(front)
            throw Failure(errno: status)
        }
        pthread_detach(thread)
    }

    /// Changes what happens from now on.
    public func set(_ direction: Direction, _ conditions: Conditions) {
        state.withLock { $0.conditions[direction] = conditions }
    }

    /// Begins or ends a black-out of one direction; what is under way still arrives.
    public func blackOut(_ direction: Direction, _ isBlackedOut: Bool) {
        state.withLock { $0.conditions[direction]?.isBlackedOut = isBlackedOut }
    }

    /// What has passed and what was lost.
    public func counts(_ direction: Direction) -> Counts { state.withLock { $0.counts[direction] ?? Counts() } }

    /// Ends it; nothing passes any more. Must be called, or its thread lives on.
    public func stop() { state.withLock { $0.isStopped = true } }

    // MARK: The thread

    private struct Parcel {
        let due: Int64
        let bytes: [UInt8]
        let socket: Int32
        let port: UInt16
    }

    private func run() {
        var backs: [UInt16: Int32] = [:]
        var parcels: [Parcel] = []
        while !state.withLock({ $0.isStopped }) {
            var wait: Int32 = 20
            let now = Self.now()
            if let next = parcels.map(\.due).min() { wait = max(0, min(wait, Int32(next - now))) }
            var polled = [pollfd(fd: front, events: Int16(POLLIN), revents: 0)]
            let clients = backs.keys.sorted()
            for client in clients { polled.append(pollfd(fd: backs[client] ?? -1, events: Int16(POLLIN), revents: 0)) }
            _ = poll(&polled, nfds_t(polled.count), wait)
            if polled[0].revents != 0 {
                Self.drain(front) { bytes, sender in
                    if backs[sender] == nil { backs[sender] = try? Self.socket().0 }
                    guard let back = backs[sender] else { return }
                    take(bytes, .toServer, on: back, to: server, &parcels)
                }
            }
            for (index, client) in clients.enumerated() where polled[index + 1].revents != 0 {
                Self.drain(polled[index + 1].fd) { bytes, sender in
                    if sender == server { take(bytes, .toClient, on: front, to: client, &parcels) }
                }
            }
            let current = Self.now()
            for parcel in parcels.filter({ $0.due <= current }).sorted(by: { $0.due < $1.due }) {
                Self.send(parcel.bytes, on: parcel.socket, to: parcel.port)
            }
            parcels.removeAll { $0.due <= current }
        }
        close(front)
        for back in backs.values { close(back) }
    }

    private func take(
        _ bytes: [UInt8], _ direction: Direction, on socket: Int32, to port: UInt16, _ parcels: inout [Parcel]
    ) {
        let delay = state.withLock { state -> Int? in
            guard let conditions = state.conditions[direction] else { return nil }
            if state.loses(direction, conditions, at: Self.now()) {
                state.counts[direction]?.lost += 1
                return nil
            }
            state.counts[direction]?.passed += 1
            return conditions.delayMilliseconds
                + Int.random(in: 0...max(0, conditions.jitterMilliseconds), using: &state.random)
        }
        guard let delay else { return }
        guard delay > 0 else { return Self.send(bytes, on: socket, to: port) }
        parcels.append(Parcel(due: Self.now() + Int64(delay), bytes: bytes, socket: socket, port: port))
    }

    /// Milliseconds of the monotonic clock.
    private static func now() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
    }

    // MARK: Sockets

    private static func socket() throws -> (Int32, UInt16) {
        let descriptor = Glibc.socket(
            AF_INET, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw Failure(errno: errno) }
        var address = loopback(0)
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, length) == 0 ? getsockname(descriptor, $0, &length) : -1
            }
        }
        guard status == 0 else {
            defer { close(descriptor) }
            throw Failure(errno: errno)
        }
        return (descriptor, UInt16(bigEndian: address.sin_port))
    }

    private static func loopback(_ port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr = in_addr(s_addr: UInt32(0x7F00_0001).bigEndian)
        return address
    }

    private static func send(_ bytes: [UInt8], on descriptor: Int32, to port: UInt16) {
        var address = loopback(port)
        withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                _ = bytes.withUnsafeBytes {
                    sendto(
                        descriptor, $0.baseAddress, $0.count, 0, pointer, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
        }
    }

    private static func drain(_ descriptor: Int32, _ body: ([UInt8], UInt16) -> Void) {
        var buffer = [UInt8](repeating: 0, count: 2_048)
        while true {
            var address = sockaddr_in()
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let count = withUnsafeMutablePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                    recvfrom(descriptor, &buffer, buffer.count, 0, pointer, &length)
                }
            }
            guard count > 0 else { return }
            body(Array(buffer[..<count]), UInt16(bigEndian: address.sin_port))
        }
    }
}
