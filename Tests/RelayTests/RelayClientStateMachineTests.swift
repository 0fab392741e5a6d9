// The rules of the link: connecting, refusals, trying again.
import MonotonicTime
import QUIC
import RelayProtocol
import Testing

@testable import RelayClient

@Suite struct RelayClientStateMachineTests {
    private var machine = RelayClientStateMachine()
    private var now = Instant(nanoseconds: 1)

    private mutating func becomeReady() {
        _ = machine.handle(.join, at: now)
        _ = machine.handle(.deadline, at: now)
        #expect(machine.handle(.connected, at: now) == [.sendJoin])
        #expect(
            machine.handle(.welcomed(channelName: "Yard"), at: now) == [.tell(.ready(channelName: "Yard"))])
    }

    @Test mutating func `a link connects, joins and is ready without any timer left`() {
        #expect(machine.handle(.join, at: now) == [.tell(.connecting), .connect])
        #expect(machine.handle(.join, at: now).isEmpty)
        #expect(machine.handle(.connected, at: now) == [.sendJoin])
        #expect(machine.handle(.welcomed(channelName: "Yard"), at: now) == [.tell(.ready(channelName: "Yard"))])
        #expect(machine.isReady)
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `waits grow to half a minute and start anew once ready`() {
        _ = machine.handle(.join, at: now)
        for expected in [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 30_000, 30_000] {
            let wait = Duration.milliseconds(expected)
            let error = RelayLinkError.unreachable("nobody")
            #expect(
                machine.handle(.connectionEnded(error), at: now)
                    == [.close(.none), .tell(.unavailable(error, retryAfter: wait))])
            #expect(machine.nextDeadline == now + wait)
            #expect(machine.handle(.deadline, at: now).isEmpty)
            now = now + wait
            #expect(machine.handle(.deadline, at: now) == [.tell(.connecting), .connect])
        }
        _ = machine.handle(.connected, at: now)
        _ = machine.handle(.welcomed(channelName: "Yard"), at: now)
        let actions = machine.handle(.connectionEnded(.lost("gone")), at: now)
        #expect(
            actions == [
                .linkLost, .close(.none), .tell(.unavailable(.lost("gone"), retryAfter: .milliseconds(250))),
            ])
    }

    @Test mutating func `addresses take turns quickly at first, and a slow network gets its time all the same`() {
        _ = machine.handle(.join, at: now)
        #expect(machine.nextDeadline == now + .seconds(10))
        #expect(machine.handle(.addressesFound(2), at: now + .milliseconds(100)) == [])
        #expect(machine.nextDeadline == now + .milliseconds(1_500), "counted from the beginning of the attempt")
        var (times, waits): ([Duration], [Duration]) = ([], [])
        for _ in 0..<8 {
            now = machine.nextDeadline ?? now
            #expect(machine.handle(.deadline, at: now).contains(.close(.none)))
            waits.append((machine.nextDeadline ?? now) - now)
            now = machine.nextDeadline ?? now
            #expect(machine.handle(.deadline, at: now).last == .connect)
            times.append((machine.nextDeadline ?? now) - now)
            #expect(machine.handle(.addressesFound(2), at: now) == [])
        }
        #expect(times == [1.5, 1.5, 1.5, 1.5, 1.5, 3, 3, 3].map { .seconds($0) })
        #expect(waits == [0, 250, 0, 250, 0, 500, 0, 500].map { .milliseconds($0) }, "each address has its turn first")
        for _ in 0..<100 {
            now = machine.nextDeadline ?? now
            _ = machine.handle(.deadline, at: now)
            waits.append((machine.nextDeadline ?? now) - now)
            now = machine.nextDeadline ?? now
            _ = machine.handle(.deadline, at: now)
        }
        #expect(waits.suffix(6) == [0, 30, 0, 30, 0, 30].map { .seconds($0) })
        // One that answers ends the hurry.
        _ = machine.handle(.connected, at: now)
        _ = machine.handle(.welcomed(channelName: "Yard"), at: now)
        _ = machine.handle(.connectionEnded(.lost("gone")), at: now)
        now = machine.nextDeadline ?? now
        _ = machine.handle(.deadline, at: now)
        #expect(machine.nextDeadline == now + .milliseconds(1_500))
        #expect(machine.handle(.addressesFound(1), at: now) == [])
        #expect(machine.nextDeadline == now + .milliseconds(1_500), "an attempt is not lengthened")
    }

    @Test mutating func `a slow network gets its time also from who presses again and again`() {
        _ = machine.handle(.join, at: now)
        _ = machine.handle(.addressesFound(2), at: now)
        var times: [Duration] = []
        for _ in 0..<7 {
            times.append((machine.nextDeadline ?? now) - now)
            now = machine.nextDeadline ?? now
            _ = machine.handle(.deadline, at: now)
            #expect(machine.handle(.wanted, at: now).last == .connect)
        }
        #expect(times == [1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 3].map { .seconds($0) })
        // Another network may be faster.
        now = machine.nextDeadline ?? now
        _ = machine.handle(.deadline, at: now)
        _ = machine.handle(.networkChanged, at: now)
        now = machine.nextDeadline ?? now
        #expect(machine.handle(.deadline, at: now).last == .connect)
        #expect(machine.nextDeadline == now + .milliseconds(1_500))
    }

    @Test(arguments: [
        RelayLinkError.protocolViolation("nonsense"), .busy("it is busy"), .lost("the relay has restarted"),
        .closedByRelay("code 6"),
    ])
    mutating func `a relay that answers and ends the link is not asked again at once, however many addresses it has`(
        error: RelayLinkError
    ) {
        _ = machine.handle(.join, at: now)
        _ = machine.handle(.addressesFound(3), at: now)
        for _ in 0..<10 {
            _ = machine.handle(.connected, at: now)
            _ = machine.handle(.welcomed(channelName: "Yard"), at: now)
            now = now + .milliseconds(5)
            #expect(machine.handle(.connectionEnded(error), at: now).first == .linkLost)
            #expect(machine.nextDeadline.map { $0 - now >= .milliseconds(250) } == true)
            now = machine.nextDeadline ?? now
            #expect(machine.handle(.deadline, at: now).last == .connect)
        }
        _ = machine.handle(.connected, at: now)
        let refusal = ServerMessage.JoinRefused(cause: .relayBusy, phrase: "it is busy")
        _ = machine.handle(.refused(refusal), at: now)
        #expect(machine.nextDeadline.map { $0 - now >= .milliseconds(250) } == true)
    }

    @Test(arguments: [RelayLinkError.lost("the relay does not answer"), .goesDown])
    mutating func `a relay that has gone is left for the next address at once`(error: RelayLinkError) {
        _ = machine.handle(.join, at: now)
        _ = machine.handle(.addressesFound(3), at: now)
        _ = machine.handle(.connected, at: now)
        _ = machine.handle(.welcomed(channelName: "Yard"), at: now)
        now = now + .seconds(1)
        _ = machine.handle(.connectionEnded(error), at: now)
        for expected in [0, 0, 250, 0] {
            #expect(machine.nextDeadline == now + .milliseconds(expected))
            now = machine.nextDeadline ?? now
            #expect(machine.handle(.deadline, at: now).last == .connect)
            _ = machine.handle(.connectionEnded(.unreachable("closed")), at: now)
        }
    }

    @Test mutating func `a link is told to be unavailable when each address had its turn, or after a silence`() {
        let nobody = RelayLinkError.unreachable("no relay listens there")
        #expect(machine.handle(.join, at: now) == [.tell(.connecting), .connect])
        _ = machine.handle(.addressesFound(3), at: now)
        for retryAfter in [250, 250] {
            for _ in 0..<2 {
                #expect(machine.handle(.connectionEnded(nobody), at: now) == [.close(.none)])
                #expect(machine.handle(.deadline, at: now) == [.connect])
            }
            let wait = Duration.milliseconds(retryAfter)
            let all = machine.handle(.connectionEnded(nobody), at: now)
            #expect(all == [.close(.none), .tell(.unavailable(nobody, retryAfter: wait))])
            now = machine.nextDeadline ?? now
            #expect(machine.handle(.deadline, at: now) == [.tell(.connecting), .connect])
        }
        _ = machine.handle(.connectionEnded(nobody), at: now)
        _ = machine.handle(.leave, at: now)
        #expect(machine.handle(.join, at: now) == [.tell(.connecting), .connect])
        now = now + .milliseconds(1_500)
        let silence = machine.handle(.connectionEnded(nobody), at: now)
        #expect(silence == [.close(.none), .tell(.unavailable(nobody, retryAfter: .zero))])
    }

    @Test func `an idle link of several addresses is doubted when its keep-alives bring nothing`() {
        let heard = now
        #expect(IdleWatch.look(heard: nil, at: now) == (false, now + .seconds(6)), "there is no connection")
        #expect(IdleWatch.look(heard: heard, at: now + .seconds(5)) == (false, heard + .seconds(6)))
        #expect(IdleWatch.look(heard: heard, at: now + .seconds(6)) == (true, now + .seconds(12)))
        #expect(IdleWatch.silence > RelayClientStateMachine.keepAliveOfSeveral)
        let addresses = (1...3).compactMap { SocketAddress("10.0.0.\($0)", port: 1) }
        var turns = AddressTurns()
        #expect(turns.next(of: addresses) == addresses[0] && turns.next(of: addresses) == addresses[1])
        turns.succeeded()
        #expect(turns.next(of: addresses) == addresses[1], "a link that is lost is looked for where it was")
        turns.succeeded()
        turns.failed()
        #expect(turns.next(of: addresses) == addresses[2], "unless nobody answers there")
    }

    @Test mutating func `another network ends a long wait, but attempts keep their distance`() {
        _ = machine.handle(.join, at: now)
        for _ in 0..<6 {
            _ = machine.handle(.connectionEnded(.unreachable("nobody")), at: now)
            now = machine.nextDeadline ?? now
            _ = machine.handle(.deadline, at: now)
        }
        _ = machine.handle(.connectionEnded(.unreachable("nobody")), at: now)
        #expect(machine.nextDeadline == now + .seconds(15))
        #expect(machine.handle(.networkChanged, at: now).isEmpty)
        #expect(machine.nextDeadline == now + .milliseconds(250))
        now = now + .milliseconds(100)
        _ = machine.handle(.networkChanged, at: now)
        #expect(machine.nextDeadline == now + .milliseconds(150))
        now = now + .milliseconds(150)
        #expect(machine.handle(.deadline, at: now) == [.tell(.connecting), .connect])
        #expect(machine.handle(.networkChanged, at: now).isEmpty)
    }

    @Test mutating func `a join that went with the first packet is not sent twice`() {
        _ = machine.handle(.join, at: now)
        #expect(machine.handle(.earlyDataOffered, at: now) == [.sendJoin])
        #expect(machine.handle(.earlyDataOffered, at: now).isEmpty)
        #expect(machine.handle(.connected, at: now).isEmpty)
        #expect(machine.isJoining)
        #expect(machine.handle(.welcomed(channelName: "Yard"), at: now) == [.tell(.ready(channelName: "Yard"))])
    }

    @Test mutating func `nobody answering is given up after ten seconds, an unanswered join after five`() {
        _ = machine.handle(.join, at: now)
        #expect(machine.nextDeadline == now + .seconds(10))
        now = now + .seconds(10)
        guard
            case .tell(.unavailable(.unreachable, retryAfter: .milliseconds(250)))? =
                machine.handle(.deadline, at: now).last
        else { return #expect(Bool(false), "not given up") }
        now = now + .milliseconds(250)
        _ = machine.handle(.deadline, at: now)
        _ = machine.handle(.connected, at: now)
        now = now + .seconds(5)
        guard case .tell(.unavailable(.lost, _))? = machine.handle(.deadline, at: now).last else {
            return #expect(Bool(false), "not given up")
        }
    }

    @Test mutating func `a refusal that cannot change halts the link until the next join`() {
        for cause in [JoinRefusal.notInvited, .revoked, .unsupportedVersion] {
            machine = RelayClientStateMachine()
            _ = machine.handle(.join, at: now)
            _ = machine.handle(.connected, at: now)
            let actions = machine.handle(.refused(.init(cause: cause, phrase: "no")), at: now)
            let error: RelayLinkError = cause == .unsupportedVersion ? .versionMismatch("no") : .invitationRefused("no")
            #expect(actions == [.close(.joinRefused), .tell(.unavailable(error, retryAfter: nil))])
            #expect(machine.nextDeadline == nil)
            #expect(machine.handle(.connectionEnded(.lost("closed")), at: now).isEmpty)
            #expect(machine.handle(.join, at: now) == [.tell(.connecting), .connect])
        }
    }

    @Test mutating func `a full relay is asked again, no sooner than it says`() {
        _ = machine.handle(.join, at: now)
        _ = machine.handle(.connected, at: now)
        let refusal = ServerMessage.JoinRefused(cause: .channelFull, phrase: "full", retryAfter: .seconds(20))
        #expect(
            machine.handle(.refused(refusal), at: now)
                == [.close(.joinRefused), .tell(.unavailable(.full("full"), retryAfter: .seconds(20)))])
    }

    @Test mutating func `a relay that goes down is asked again soon, and at once for who speaks`() {
        _ = machine.handle(.join, at: now)
        _ = machine.handle(.connected, at: now)
        let refusal = ServerMessage.JoinRefused(cause: .relayBusy, phrase: "the relay is going down")
        let state = RelayLinkState.unavailable(.busy("the relay is going down"), retryAfter: .milliseconds(250))
        #expect(state.mayBeReadySoon)
        #expect(machine.handle(.refused(refusal), at: now) == [.close(.joinRefused), .tell(state)])
        now = now + .milliseconds(250)
        #expect(machine.handle(.wanted, at: now).contains(.connect))
    }

    @Test mutating func `two machines with one key do not fight for the place, and a foreign relay is not hammered`() {
        for error in [RelayLinkError.replaced, .wrongRelayKey] {
            machine = RelayClientStateMachine()
            becomeReady()
            #expect(
                machine.handle(.connectionEnded(error), at: now).last
                    == .tell(.unavailable(error, retryAfter: .seconds(30))))
        }
    }

    @Test mutating func `leaving says goodbye from any state and stops trying`() {
        _ = machine.handle(.join, at: now)
        #expect(machine.handle(.leave, at: now) == [.sayGoodbye, .tell(.stopped)])
        #expect(machine.nextDeadline == nil)
        becomeReady()
        #expect(machine.handle(.leave, at: now) == [.linkLost, .sayGoodbye, .tell(.stopped)])
        #expect(machine.handle(.connectionEnded(.lost("closed")), at: now).isEmpty)
        #expect(machine.handle(.leave, at: now).isEmpty)
    }

    @Test mutating func `a relay that breaks the protocol is left and tried again`() {
        becomeReady()
        #expect(
            machine.handle(.violation("nonsense"), at: now) == [
                .linkLost, .close(.protocolViolation),
                .tell(.unavailable(.protocolViolation("nonsense"), retryAfter: .milliseconds(250))),
            ])
    }

    @Test(arguments: [RelayLinkError.replaced, .wrongRelayKey])
    mutating func `another machine with this one's key, or a false relay, is not met sooner on another network`(
        error: RelayLinkError
    ) {
        becomeReady()
        _ = machine.handle(.connectionEnded(error), at: now)
        let due = machine.nextDeadline
        #expect(due == now + .seconds(30))
        #expect(machine.handle(.networkChanged, at: now).isEmpty)
        #expect(machine.nextDeadline == due)
    }

    @Test mutating func `a relay cannot send a client away for days`() {
        _ = machine.handle(.join, at: now)
        _ = machine.handle(.connected, at: now)
        let refusal = ServerMessage.JoinRefused(
            cause: .relayBusy, phrase: "later", retryAfter: .milliseconds(Int(UInt32.max)))
        _ = machine.handle(.refused(refusal), at: now)
        #expect(machine.nextDeadline == now + RelayClientStateMachine.retryAfterMaximum)
    }
}
