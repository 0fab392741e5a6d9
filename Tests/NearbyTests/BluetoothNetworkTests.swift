// The network that Bluetooth makes: when it is asked for, given up, and asked for again.
import MonotonicTime
import Testing

@testable import Nearby

@Suite struct BluetoothNetworkTests {
    private var network = BluetoothNetwork()
    private var now = Instant.zero + .seconds(10)
    private static let host = BluetoothAccessPoint("00:AA:01:00:00:0C")
    private static let other = BluetoothAccessPoint("00:AA:01:00:00:0D")

    private mutating func handle(_ event: BluetoothNetwork.Event) -> [BluetoothNetwork.Action] {
        network.handle(event, at: now)
    }

    /// Lets time pass up to the next deadline, and says how long that was.
    private mutating func wait() -> (Duration, [BluetoothNetwork.Action]) {
        guard let deadline = network.nextDeadline else { return (.zero, []) }
        defer { now = max(now, deadline) }
        return (deadline - now, network.handleTimeout(at: max(now, deadline)))
    }

    /// Wants a network, and returns the ticket of the connection that is asked for.
    private mutating func ask(for accessPoint: BluetoothAccessPoint) throws -> UInt64 {
        for case .connect(accessPoint, let ticket) in handle(.wanted(accessPoint)) { return ticket }
        throw Missing()
    }

    private struct Missing: Error {}

    @Test func `addresses are read and written`() throws {
        let host = try #require(Self.host)
        #expect("\(host)" == "00:AA:01:00:00:0C")
        #expect(host.address == [0, 0xAA, 1, 0, 0, 0x0C])
        for text in [
            "", "00:AA:01:00:00", "00:AA:01:00:00:0C:1", "00:AA:01:00:00:0G", "00:00:00:00:00:00", "0:AA:01:00:00:0C1",
        ] {
            #expect(BluetoothAccessPoint(text) == nil, "\(text)")
        }
    }

    @Test mutating func `nothing is connected before it is wanted and there is a radio`() throws {
        let host = try #require(Self.host)
        #expect(handle(.radio(true)).isEmpty)
        #expect(network.nextDeadline == nil)
        #expect(handle(.radio(false)).isEmpty)
        #expect(handle(.wanted(host)) == [.tell(.failed(.noRadio))])
        // It is wanted still.
        #expect(handle(.radio(true)) == [.connect(host, ticket: 1)])
    }

    @Test mutating func `a network that is there costs no wake up`() throws {
        let host = try #require(Self.host)
        _ = handle(.radio(true))
        #expect(!network.isInUse)
        let ticket = try ask(for: host)
        #expect(network.isInUse)
        #expect(handle(.wanted(host)).isEmpty)
        #expect(handle(.connected(ticket: ticket, interface: "bnep0")) == [.tell(.connected(interface: "bnep0"))])
        #expect(network.isInUse)
        #expect(network.nextDeadline == nil)
        #expect(handle(.wanted(nil)) == [.disconnect(host)])
        #expect(!network.isInUse)
        #expect(network.nextDeadline == nil)
        #expect(network.wish == nil)
    }

    @Test mutating func `a lost network is made again with growing pauses`() throws {
        let host = try #require(Self.host)
        _ = handle(.radio(true))
        var ticket = try ask(for: host)
        _ = handle(.connected(ticket: ticket, interface: "bnep0"))
        #expect(handle(.lost(try #require(Self.other))).isEmpty)
        #expect(handle(.lost(host)).isEmpty)
        #expect(handle(.lost(host)).isEmpty)
        var pauses: [Duration] = []
        for _ in 0..<9 {
            let (pause, actions) = wait()
            pauses.append(pause)
            guard case .connect(host, let next)? = actions.first else { throw Missing() }
            ticket = next
            #expect(handle(.refused(ticket: ticket, .refused("far"))) == [.tell(.failed(.refused("far")))])
        }
        #expect(pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60].map { .seconds($0) })
        let (_, actions) = wait()
        guard case .connect(host, let last)? = actions.first else { throw Missing() }
        #expect(handle(.connected(ticket: last, interface: "bnep0")) == [.tell(.connected(interface: "bnep0"))])
        // What has worked begins with short pauses again.
        _ = handle(.lost(host))
        #expect(wait().0 == .seconds(1))
    }

    @Test mutating func `whoever asks again is answered and does not wait for the next attempt`() throws {
        let host = try #require(Self.host)
        #expect(handle(.wanted(host)) == [.tell(.failed(.noRadio))])
        #expect(handle(.wanted(host)) == [.tell(.failed(.noRadio))])
        #expect(handle(.radio(true)) == [.connect(host, ticket: 1)])
        #expect(handle(.refused(ticket: 1, .notPaired)) == [.tell(.failed(.notPaired))])
        #expect(handle(.wanted(host)) == [.connect(host, ticket: 2)])
        // While one is made, its outcome is the answer.
        #expect(handle(.wanted(host)).isEmpty)
        #expect(handle(.connected(ticket: 2, interface: "bnep0")) == [.tell(.connected(interface: "bnep0"))])
        #expect(handle(.wanted(host)).isEmpty)
    }

    @Test mutating func `a connection that hangs is given up`() throws {
        let host = try #require(Self.host)
        _ = handle(.radio(true))
        let ticket = try ask(for: host)
        let (time, actions) = wait()
        #expect(time == BluetoothNetwork.connectTime)
        #expect(actions == [.disconnect(host), .tell(.failed(.timedOut))])
        // What comes of it later is of no account.
        #expect(handle(.connected(ticket: ticket, interface: "bnep0")).isEmpty)
        #expect(handle(.refused(ticket: ticket, .notPaired)).isEmpty)
        #expect(wait().1 == [.connect(host, ticket: ticket + 1)])
    }

    @Test mutating func `another wish takes the place of the first`() throws {
        let (host, other) = (try #require(Self.host), try #require(Self.other))
        _ = handle(.radio(true))
        let first = try ask(for: host)
        #expect(
            handle(.wanted(other)) == [
                .disconnect(host), .tell(.failed(.cancelled)), .connect(other, ticket: first + 1),
            ])
        #expect(handle(.connected(ticket: first, interface: "bnep0")).isEmpty)
        #expect(handle(.connected(ticket: first + 1, interface: "bnep1")) == [.tell(.connected(interface: "bnep1"))])
        #expect(handle(.wanted(host)) == [.disconnect(other), .connect(host, ticket: first + 2)])
    }

    @Test mutating func `with the radio everything is gone and comes back`() throws {
        let host = try #require(Self.host)
        _ = handle(.radio(true))
        let ticket = try ask(for: host)
        #expect(handle(.radio(false)) == [.tell(.failed(.noRadio))])
        #expect(network.nextDeadline == nil)
        #expect(handle(.radio(true)) == [.connect(host, ticket: ticket + 1)])
        _ = handle(.connected(ticket: ticket + 1, interface: "bnep0"))
        #expect(handle(.radio(false)).isEmpty)
        #expect(handle(.wanted(nil)).isEmpty)
        #expect(handle(.radio(true)).isEmpty)
    }
}
