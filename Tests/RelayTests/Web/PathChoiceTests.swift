// Every row of the choice of the path (docs/relay-protocol.md, section 21.5).
import MonotonicTime
import RelayProtocol
import Testing

@testable import RelayClient

struct PathChoiceTests {
    private typealias Choice = PathChoiceStateMachine
    private static let lost = RelayLinkError.lost("nothing was heard from the relay")
    private static let unreachable = RelayLinkError.unreachable("no answer")

    private var choice = Choice()
    private var now = Instant.zero + .seconds(1_000)

    private mutating func handle(_ event: Choice.Event, after pause: Duration = .zero) -> [Choice.Action] {
        now = now + pause
        return choice.handle(event, at: now)
    }

    /// Everything that is due until `pause` later.
    private mutating func wait(_ pause: Duration) -> [Choice.Action] {
        let end = now + pause
        var actions: [Choice.Action] = []
        while let due = choice.nextDeadline, due <= end {
            now = max(now, due)
            actions += choice.handle(.deadline, at: now)
        }
        now = end
        return actions
    }

    /// On TLS since just now.
    private mutating func onTLS(quiet: Bool = true) {
        _ = handle(.connect(hasTLS: true))
        _ = wait(.milliseconds(1_500))
        _ = handle(.ready(.tls))
        _ = handle(.quiet(quiet))
    }

    // MARK: The beginning

    @Test mutating func `without a place for TLS everything is as with QUIC alone`() {
        #expect(handle(.connect(hasTLS: false)) == [.open(.quic)])
        #expect(choice.nextDeadline == nil, "no timer")
        #expect(handle(.ended(.quic, Self.unreachable, isSilent: true)) == [.fail(Self.unreachable)])
        #expect(handle(.connect(hasTLS: false)) == [.open(.quic)])
        #expect(handle(.ready(.quic)) == [.use(.quic)])
        #expect(choice.nextDeadline == nil && !choice.wantsQuiet && !choice.hasAlternative)
        #expect(handle(.networkChanged) == [] && handle(.quiet(true)) == [])
        #expect(handle(.ended(.quic, Self.lost, isSilent: true)) == [.fail(Self.lost)])
    }

    @Test mutating func `QUIC that is ready in time is used, and TLS is not tried`() {
        #expect(handle(.connect(hasTLS: true)) == [.open(.quic)])
        #expect(wait(.milliseconds(1_499)) == [])
        #expect(handle(.ready(.quic)) == [.use(.quic)])
        #expect(wait(.seconds(3_600)) == [])
        #expect(choice.serving == .quic)
    }

    @Test mutating func `TLS is tried in parallel after 1.5 s, and QUIC is used if it is ready first`() {
        _ = handle(.connect(hasTLS: true))
        #expect(wait(.milliseconds(1_500)) == [.open(.tls)])
        #expect(handle(.ready(.quic), after: .milliseconds(100)) == [.close(.tls), .use(.quic)])
    }

    @Test mutating func `a UDP port that nobody has begins TLS at once, and QUIC may still be ready first`() {
        _ = handle(.connect(hasTLS: true))
        #expect(handle(.refused, after: .milliseconds(3)) == [.open(.tls)])
        #expect(handle(.refused) == [] && wait(.seconds(2)) == [])
        #expect(handle(.ended(.tls, Self.unreachable, isSilent: true)) == [], "the relay may be restarting")
        #expect(handle(.ready(.quic), after: .seconds(1)) == [.use(.quic)])
        #expect(handle(.refused) == [] && choice.serving == .quic)
    }

    @Test mutating func `TLS that is ready first is used, and QUIC is closed before its join`() {
        _ = handle(.connect(hasTLS: true))
        _ = wait(.milliseconds(1_500))
        #expect(handle(.ready(.tls), after: .milliseconds(100)) == [.close(.quic), .use(.tls)])
        #expect(choice.serving == .tls && choice.isQUICSilent)
    }

    @Test mutating func `after a connection over QUIC that ended in silence, both are tried at once`() {
        _ = handle(.connect(hasTLS: true))
        _ = handle(.ready(.quic))
        #expect(handle(.ended(.quic, Self.lost, isSilent: true)) == [.fail(Self.lost)])
        #expect(handle(.connect(hasTLS: true)) == [.open(.quic), .open(.tls)])
    }

    @Test mutating func `one that the relay has closed is no reason for TLS`() {
        _ = handle(.connect(hasTLS: true))
        _ = handle(.ready(.quic))
        _ = handle(.ended(.quic, .goesDown, isSilent: false))
        #expect(handle(.connect(hasTLS: true)) == [.open(.quic)])
    }

    @Test mutating func `another network is not taken to be silent`() {
        _ = handle(.connect(hasTLS: true))
        _ = handle(.ready(.quic))
        _ = handle(.ended(.quic, Self.lost, isSilent: true))
        _ = handle(.networkChanged)
        #expect(handle(.connect(hasTLS: true)) == [.open(.quic)])
    }

    @Test mutating func `QUIC that fails at once leaves the attempt to TLS`() {
        _ = handle(.connect(hasTLS: true))
        #expect(handle(.ended(.quic, .system("no descriptor"), isSilent: false)) == [.open(.tls)])
        #expect(handle(.ready(.tls)) == [.use(.tls)])
    }

    @Test mutating func `where both fail, both reasons are told, and the attempt does not wait for its end`() {
        _ = handle(.connect(hasTLS: true))
        _ = wait(.milliseconds(1_500))
        #expect(handle(.ended(.tls, .unreachable("the proxy refuses"), isSilent: false)) == [])
        #expect(
            wait(.seconds(5)) == [
                .close(.quic), .fail(.unreachable("over UDP: no answer; over TLS: the proxy refuses")),
            ])
        _ = handle(.connect(hasTLS: true))
        _ = handle(.ended(.quic, Self.unreachable, isSilent: true))
        #expect(handle(.ended(.tls, .wrongRelayKey, isSilent: false)) == [.fail(.wrongRelayKey)])
    }

    @Test mutating func `what the user forbids is not tried`() {
        choice = Choice(.quic)
        #expect(handle(.connect(hasTLS: true)) == [.open(.quic)])
        #expect(wait(.seconds(9)) == [] && !choice.hasAlternative)
        choice = Choice(.tls)
        #expect(handle(.connect(hasTLS: true)) == [.open(.tls)])
        #expect(handle(.ready(.tls)) == [.use(.tls)])
        #expect(handle(.quiet(true)) == [] && wait(.seconds(3_600)) == [] && handle(.networkChanged) == [])
        #expect(handle(.ended(.tls, Self.lost, isSilent: true)) == [.fail(Self.lost)])
        #expect(handle(.connect(hasTLS: false)) == [.open(.quic)], "there is nothing else")
    }

    // MARK: Back to QUIC

    @Test mutating func `on TLS, QUIC is tried after 30 s, then after pauses that double up to 10 min`() {
        onTLS()
        var pauses: [Int64] = []
        for _ in 0..<7 {
            let since = now
            while choice.nextDeadline.map({ $0 > now }) ?? false, wait(.seconds(1)) != [.open(.quic)] {}
            pauses.append((now - since).components.seconds)
            #expect(handle(.ended(.quic, Self.unreachable, isSilent: true)) == [])
        }
        #expect(pauses == [30, 60, 120, 240, 480, 600, 600])
    }

    @Test mutating func `a try that nobody answers ends after 10 s`() {
        onTLS()
        #expect(wait(.seconds(30)) == [.open(.quic)])
        #expect(wait(.seconds(10)) == [.close(.quic)])
        #expect(choice.serving == .tls)
    }

    @Test mutating func `another network is worth a try at once, and the pauses begin anew`() {
        onTLS()
        _ = wait(.seconds(30))
        _ = handle(.ended(.quic, Self.unreachable, isSilent: true))
        #expect(handle(.networkChanged, after: .seconds(10)) == [.open(.quic)])
        _ = handle(.ended(.quic, Self.unreachable, isSilent: true))
        #expect(handle(.networkChanged, after: .seconds(1)) == [], "not again and again")
        #expect(wait(.seconds(4)) == [.open(.quic)])
    }

    @Test mutating func `the link joins over QUIC when it is quiet, and moves when it is let in`() {
        onTLS()
        _ = wait(.seconds(30))
        #expect(handle(.ready(.quic)) == [.join])
        #expect(choice.isMoving && choice.serving == .tls, "the old connection serves")
        #expect(handle(.welcomed) == [.moved])
        #expect(choice.serving == .quic && choice.nextDeadline == nil)
        #expect(handle(.ended(.tls, .replaced, isSilent: false)) == [], "it is not this link's any more")
    }

    @Test mutating func `while somebody talks QUIC is not tried, and a connection that is ready waits`() {
        onTLS(quiet: false)
        #expect(wait(.seconds(120)) == [])
        #expect(handle(.quiet(true)) == [.open(.quic)])
        _ = handle(.quiet(false))
        #expect(handle(.ready(.quic)) == [])
        #expect(handle(.quiet(true), after: .seconds(3)) == [.join])
    }

    @Test mutating func `one that waits too long is closed before the relay does it, and tried again`() {
        onTLS()
        _ = wait(.seconds(30))
        _ = handle(.quiet(false))
        _ = handle(.ready(.quic))
        #expect(wait(.seconds(5)) == [.close(.quic)])
        _ = handle(.quiet(true))
        #expect(wait(.seconds(30)) == [.open(.quic)])
    }

    @Test mutating func `the close of the old connection is expected, until the new one is welcomed`() {
        onTLS()
        _ = wait(.seconds(30))
        _ = handle(.ready(.quic))
        #expect(handle(.ended(.tls, .replaced, isSilent: false)) == [])
        #expect(choice.serving == nil)
        #expect(handle(.welcomed) == [.moved])
    }

    @Test mutating func `a move that nobody answers is given up, and the old connection serves on`() {
        onTLS()
        _ = wait(.seconds(30))
        _ = handle(.ready(.quic))
        #expect(wait(.milliseconds(1_500)) == [.close(.quic), .stay])
        #expect(choice.serving == .tls)
        // The join has arrived after all.
        #expect(
            handle(.ended(.tls, .replaced, isSilent: false), after: .seconds(2))
                == [.fail(.lost("its own later connection replaced it"))])
    }

    @Test mutating func `a move whose connections both end has lost the link`() {
        onTLS()
        _ = wait(.seconds(30))
        _ = handle(.ready(.quic))
        _ = handle(.ended(.tls, .replaced, isSilent: false))
        #expect(
            handle(.ended(.quic, Self.lost, isSilent: true)) == [.fail(.lost("its own later connection replaced it"))])
    }

    @Test mutating func `a relay that names the one that serves the channel is left for it, and presses do not wait`() {
        onTLS()
        _ = wait(.seconds(30))
        for _ in 0..<4 {
            #expect(handle(.ready(.quic)) == [.join])
            #expect(handle(.sentOn) == [.close(.quic), .stay, .open(.quic)])
            #expect(choice.serving == .tls && !choice.isMoving)
        }
        _ = handle(.ready(.quic))
        #expect(handle(.sentOn) == [.close(.quic), .stay], "these send it to each other")
        #expect(wait(.seconds(59)) == [])
        #expect(wait(.seconds(1)) == [.open(.quic)])
        _ = handle(.ready(.quic))
        #expect(handle(.sentOn) == [.close(.quic), .stay, .open(.quic)])
        #expect(handle(.ready(.quic)) == [.join] && handle(.welcomed) == [.moved])
    }

    @Test mutating func `a move that is sent on when the old connection has ended has lost the link`() {
        onTLS()
        _ = wait(.seconds(30))
        _ = handle(.ready(.quic))
        _ = handle(.ended(.tls, Self.lost, isSilent: true))
        #expect(handle(.sentOn) == [.close(.quic), .fail(Self.lost)])
        #expect(choice.nextDeadline == nil)
    }

    @Test mutating func `another machine with this key is told from the own move`() {
        onTLS()
        #expect(handle(.ended(.tls, .replaced, isSilent: false)) == [.fail(.replaced)])
    }

    @Test mutating func `a link that is lost on TLS closes what it has begun over QUIC`() {
        onTLS()
        _ = wait(.seconds(30))
        #expect(handle(.ended(.tls, Self.lost, isSilent: true)) == [.close(.quic), .fail(Self.lost)])
        #expect(choice.nextDeadline == nil)
    }

    @Test mutating func `nothing is due after the end`() {
        onTLS()
        _ = handle(.closed(isSilent: false))
        #expect(wait(.seconds(3_600)) == [] && choice.serving == nil)
        #expect(handle(.ready(.quic)) == [] && handle(.welcomed) == [])
    }
}
