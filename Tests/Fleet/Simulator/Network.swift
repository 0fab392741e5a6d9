// The network between one device and the relays, and the connections over it. QUIC is modelled: an ordered stream that repeats what
// is lost, datagrams that do not, and both ends' time-outs.
import MonotonicTime
import QUIC
import RelayProtocol
import RelayServer
import TestSupport

/// The path of one device.
final class NetworkPath {
    /// QUIC gives a connection up after so long without a packet (`QUICConfiguration.idleTimeout`).
    static let idleTimeout = Duration.seconds(45)
    /// The same for one that is being made.
    static let handshakeTimeout = Duration.seconds(10)
    /// A packet that was lost comes again after this.
    static let repeatTime = Duration.milliseconds(80)

    private let world: World
    private var random: SeededGenerator
    private(set) var lossPercent = 0
    private(set) var doublesPercent = 0
    private(set) var jitter = Duration.zero
    /// Until when nothing passes.
    private(set) var upBlocked = Instant.zero
    private(set) var downBlocked = Instant.zero

    /// - Parameter use: Names it among the ways whose chances are drawn.
    init(_ world: World, use: String) {
        self.world = world
        random = world.random(use)
    }

    // MARK: Trouble

    /// Until when anything goes wrong on it, by what has happened so far.
    private(set) var troubledUntil = Instant.zero

    private func trouble(for time: Duration) { troubledUntil = max(troubledUntil, world.now + time) }

    /// Something else than this path keeps packets from passing.
    func noteTrouble(for time: Duration) { trouble(for: time) }

    func lose(_ percent: Int, for time: Duration) {
        lossPercent = percent
        trouble(for: time)
        world.after(time) { self.lossPercent = 0 }
    }

    func double(_ percent: Int, for time: Duration) {
        doublesPercent = percent
        trouble(for: time)
        world.after(time) { self.doublesPercent = 0 }
    }

    func delay(_ most: Duration, for time: Duration) {
        jitter = most
        trouble(for: time)
        world.after(time) { self.jitter = .zero }
    }

    func block(up: Bool, down: Bool, for time: Duration) {
        trouble(for: time)
        if up { upBlocked = max(upBlocked, world.now + time) }
        if down { downBlocked = max(downBlocked, world.now + time) }
    }

    /// Whether nothing goes wrong on it now.
    var isHealthy: Bool {
        lossPercent == 0 && doublesPercent == 0 && jitter == .zero && world.now >= upBlocked && world.now >= downBlocked
    }

    // MARK: Passing

    /// When each copy of a datagram arrives; none: it is lost.
    func datagram(up: Bool) -> [Instant] {
        guard world.now >= (up ? upBlocked : downBlocked), !random.chance(lossPercent) else { return [] }
        return (0..<(random.chance(doublesPercent) ? 2 : 1)).map { _ in
            world.now + .milliseconds(5)
                + .nanoseconds(Int64.random(in: 0...max(0, jitter.nanoseconds), using: &random))
        }
    }

    /// When something arrives that is repeated until it does.
    func reliable(up: Bool) -> Instant {
        var time = world.now + .milliseconds(Int.random(in: 4...12, using: &random))
        var losses = 0
        while losses < 20, random.chance(lossPercent) {
            time = time + Self.repeatTime
            losses += 1
        }
        time = time + .nanoseconds(Int64.random(in: 0...max(0, jitter.nanoseconds), using: &random))
        let blocked = up ? upBlocked : downBlocked
        // Probes go out less and less often while nothing is answered.
        return blocked > time ? blocked + .milliseconds(Int.random(in: 10...400, using: &random)) : time
    }

    func milliseconds(_ range: ClosedRange<Int>) -> Duration { .milliseconds(Int.random(in: range, using: &random)) }
}

/// A join that goes with the first packet of a connection (0-RTT).
struct EarlyJoin {
    var message: ClientMessage
    /// The relay's key that the ticket was made with.
    var ticketKey: Int
    /// Which life of the relay it was sent to: that one knows it, and takes it once.
    var life: Int
}

/// One QUIC connection, as both ends see it.
final class Connection {
    let id: ConnectionID
    let device: Int
    /// The other end, and which of its lives.
    unowned let relay: SimulatedRelay
    let generation: Int
    /// The way between them.
    let path: NetworkPath
    /// Nobody is at its other end: its first packets were recorded.
    var isReplay = false
    /// The relay has taken the join that came with the first packet.
    var takesEarlyData = false
    /// The relay has the end of the handshake. Before, it can read nothing but early data.
    var isConfirmed = false
    /// Takes what the relay says, where no link does: the connection of a question.
    var question: ((ServerMessage) -> Void)?
    /// The machine's route that its socket uses.
    var route: NetworkRoute?
    /// Nothing passes: the relay does not know the address yet that the client has now.
    var isStalled = false { didSet { if isStalled != oldValue { stalls += 1 } } }
    /// Counts beginnings and ends of that.
    private(set) var stalls = 0
    /// What is repeated until it passes, in order.
    private var stalled: [() -> Void] = []
    /// Either end may be gone without the other's knowing.
    var isOpenAtClient = true
    var isOpenAtRelay = true
    /// The stream is in order.
    var lastUp = Instant.zero
    var lastDown = Instant.zero
    /// When the client heard anything.
    var heard: Instant
    var datagrams: UInt64 = 0

    init(id: ConnectionID, device: Int, relay: SimulatedRelay, by path: NetworkPath, at now: Instant) {
        self.path = path
        self.id = id
        self.device = device
        self.relay = relay
        generation = relay.generation
        heard = now
    }

    /// Does the work now, or when packets pass again.
    func whenItPasses(_ work: @escaping () -> Void) { if isStalled { stalled.append(work) } else { work() } }

    /// Packets pass again.
    func goOn() {
        isStalled = false
        let due = stalled
        stalled = []
        for work in due { whenItPasses(work) }
    }
}
