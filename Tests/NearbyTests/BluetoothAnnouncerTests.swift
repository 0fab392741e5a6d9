// When channels are advertised by Bluetooth.
import MonotonicTime
import Testing

@testable import Nearby

@Suite struct BluetoothAnnouncerTests {
    private var announcer = BluetoothAnnouncer()
    private var now = Instant.zero + .seconds(10)

    private mutating func handle(_ event: BluetoothAnnouncer.Event) -> [BluetoothAnnouncer.Action] {
        announcer.handle(event, at: now)
    }

    /// Lets time pass up to the next deadline.
    private mutating func wait() -> [BluetoothAnnouncer.Action] {
        guard let deadline = announcer.nextDeadline else { return [] }
        now = max(now, deadline)
        return announcer.handleTimeout(at: now)
    }

    private mutating func announced(_ tag: UInt32 = 1) -> UInt64 {
        _ = handle(.radio(true))
        guard case .register(tag, let ticket)? = handle(.record(tag: tag)).first else { return 0 }
        _ = handle(.done(ticket: ticket))
        return ticket
    }

    @Test mutating func `nothing is advertised before there is something and a radio`() {
        #expect(handle(.radio(true)).isEmpty)
        #expect(announcer.nextDeadline == nil)
        #expect(handle(.radio(false)).isEmpty)
        #expect(handle(.record(tag: 5)).isEmpty)
        #expect(handle(.radio(true)) == [.register(tag: 5, ticket: 1)])
        #expect(!announcer.isAnnounced)
        #expect(handle(.done(ticket: 1)).isEmpty)
        #expect(announcer.isAnnounced)
    }

    @Test mutating func `what is advertised costs no wake up`() {
        #expect(announced() == 1)
        #expect(announcer.nextDeadline == nil)
    }

    @Test mutating func `changes are told at most every five seconds`() {
        #expect(announced() == 1)
        #expect(handle(.record(tag: 2)).isEmpty)
        #expect(handle(.record(tag: 3)).isEmpty)
        let before = now
        #expect(wait() == [.update(tag: 3)])
        #expect(now - before == BluetoothAnnouncer.updatePause)
        #expect(announcer.nextDeadline == nil)
        now = now + .seconds(60)
        #expect(handle(.record(tag: 4)) == [.update(tag: 4)])
        // A change that is taken back is none.
        #expect(handle(.record(tag: 5)).isEmpty)
        #expect(handle(.record(tag: 4)).isEmpty)
        #expect(announcer.nextDeadline == nil)
    }

    @Test mutating func `refusals are tried again a limited number of times and told`() {
        _ = handle(.radio(true))
        var actions = handle(.record(tag: 1))
        var registrations = 0
        var pauses: [Duration] = []
        while case .register(_, let ticket)? = actions.first {
            registrations += 1
            #expect(handle(.refused(ticket: ticket, reason: "no room")).isEmpty)
            #expect(announcer.refusal == "no room")
            let before = now
            actions = wait()
            pauses.append(now - before)
        }
        #expect(registrations == BluetoothAnnouncer.attemptsMaximum)
        #expect(pauses.first == .seconds(1))
        #expect(pauses.allSatisfy { $0 <= RetryPause.longest })
        #expect(announcer.nextDeadline == nil)
        // With another record it is asked for again, at once, and as often.
        for tag in 2...3 as ClosedRange<UInt32> {
            actions = handle(.record(tag: tag))
            #expect(actions.count == 1 && announcer.refusal == nil)
            registrations = 0
            while case .register(tag, let ticket)? = actions.first {
                registrations += 1
                #expect(handle(.refused(ticket: ticket, reason: "no room")).isEmpty)
                actions = wait()
            }
            #expect(registrations == BluetoothAnnouncer.attemptsMaximum)
        }
        // A new radio is asked again, at once.
        _ = handle(.radio(false))
        #expect(announcer.refusal == nil)
        #expect(handle(.radio(true)).count == 1)
    }

    @Test mutating func `what bluetoothd ends is asked for again`() {
        #expect(announced() == 1)
        #expect(handle(.released).isEmpty)
        #expect(announcer.refusal != nil)
        #expect(wait() == [.register(tag: 1, ticket: 2)])
        _ = handle(.done(ticket: 2))
        #expect(announcer.refusal == nil)
    }

    @Test mutating func `a radio that comes back is given everything again`() {
        #expect(announced() == 1)
        #expect(handle(.radio(false)).isEmpty)
        #expect(handle(.radio(true)) == [.register(tag: 1, ticket: 2)])
        // The answer of the former life is of no account.
        #expect(handle(.refused(ticket: 1, reason: "gone")).isEmpty)
        #expect(announcer.refusal == nil)
    }

    @Test mutating func `the last channel ends the advertisement`() {
        #expect(announced() == 1)
        #expect(handle(.record(tag: nil)) == [.unregister])
        #expect(handle(.record(tag: nil)).isEmpty)
        #expect(handle(.record(tag: 7)) == [.register(tag: 7, ticket: 2)])
        // While it is being registered, too.
        #expect(handle(.record(tag: nil)) == [.unregister])
        #expect(handle(.done(ticket: 2)).isEmpty)
        #expect(!announcer.isAnnounced)
    }

    @Test mutating func `a record that changes while it is registered is told afterwards`() {
        _ = handle(.radio(true))
        #expect(handle(.record(tag: 1)).count == 1)
        #expect(handle(.record(tag: 2)).isEmpty)
        #expect(handle(.done(ticket: 1)).isEmpty)
        #expect(wait() == [.update(tag: 2)])
    }
}
