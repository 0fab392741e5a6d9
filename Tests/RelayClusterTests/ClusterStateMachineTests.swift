// Who has the lease, and when it ends.
import MonotonicTime
import Testing

@testable import RelayCluster

@Suite struct ClusterStateMachineTests {
    private let own = ClusterMember(node: "a", identifier: "aa", incarnation: "a1", place: "a:1")
    private let other = ClusterMember(node: "b", identifier: "bb", incarnation: "b1", place: "b:1")

    private var timers: ClusterStateMachine.Timers {
        var timers = ClusterStateMachine.Timers()
        timers.lease = .seconds(12)
        return timers
    }

    private func at(_ seconds: Double) -> Instant { .zero + .milliseconds(Int((seconds * 1_000).rounded())) }

    /// A machine that has read that lease, and what it did about it.
    private func reading(
        _ lease: ClusterLease?, revision: UInt64 = 5
    ) -> (ClusterStateMachine, [ClusterStateMachine.Action]) {
        var machine = ClusterStateMachine(own, timers: timers)
        #expect(machine.handle(.follows(true), at: at(0)) == [])
        #expect(machine.handle(.start, at: at(0)) == [.read])
        let actions = machine.handle(.read(lease, revision: revision), at: at(0.01))
        return (machine, actions)
    }

    /// One that serves since 0.02 s.
    private func serving() -> ClusterStateMachine {
        var (machine, _) = reading(nil, revision: 0)
        #expect(machine.handle(.written(revision: 6), at: at(0.02)) == [.catchUp(epoch: 1)])
        #expect(
            machine.handle(.caughtUp, at: at(0.03)) == [
                .serve, .write(own.lease(epoch: 1, .serving, lasts: .seconds(12)), over: 6),
            ])
        #expect(machine.handle(.written(revision: 7), at: at(0.04)) == [])
        #expect(machine.isServing)
        return machine
    }

    @Test func `a node that cannot follow the log leaves the lease to others`() {
        var machine = ClusterStateMachine(own, timers: timers)
        #expect(machine.handle(.start, at: at(0)) == [.read])
        #expect(machine.handle(.read(nil, revision: 0), at: at(0.01)) == [])
        #expect(machine.handle(.follows(true), at: at(0.1)) == [.read])
        #expect(
            machine.handle(.read(nil, revision: 0), at: at(0.11))
                == [.write(own.lease(epoch: 1, .starting, lasts: .seconds(12)), over: 0)])
        var (other, _) = reading(self.other.lease(epoch: 4, .serving, lasts: .seconds(12)))
        #expect(other.handle(.follows(false), at: at(0.1)) == [])
        #expect(other.handle(.portClosed(epoch: 4), at: at(0.2)) == [.read])
        let lease = self.other.lease(epoch: 4, .serving, lasts: .seconds(12))
        #expect(other.handle(.read(lease, revision: 5), at: at(0.21)) == [])
    }

    @Test func `the first node takes the lease`() {
        let (machine, actions) = reading(nil, revision: 0)
        #expect(actions == [.write(own.lease(epoch: 1, .starting, lasts: .seconds(12)), over: 0)])
        #expect(!machine.isServing)
    }

    @Test func `a node stands by while another one renews, and takes the lease when that ends`() {
        var (machine, actions) = reading(other.lease(epoch: 4, .serving, lasts: .seconds(12)))
        #expect(
            actions == [.standBy(other.lease(epoch: 4, .serving, lasts: .seconds(12))), .watch(place: "b:1", epoch: 4)])
        var time = 0.26
        for revision in 6..<20 {
            #expect(machine.handle(.deadline, at: at(time)) == [.read])
            #expect(
                machine.handle(
                    .read(other.lease(epoch: 4, .serving, lasts: .seconds(12)), revision: UInt64(revision)),
                    at: at(time)) == [])
            time += 1
        }
        // Not renewed since. Reads that fail prove nothing.
        let last = time - 1
        #expect(machine.handle(.deadline, at: at(last + 11.9)) == [.read])
        #expect(
            machine.handle(
                .read(other.lease(epoch: 4, .serving, lasts: .seconds(12)), revision: 19), at: at(last + 11.95)) == [])
        #expect(machine.handle(.deadline, at: at(last + 12.3)) == [.read])
        #expect(machine.handle(.readFailed, at: at(last + 12.4)) == [])
        #expect(machine.handle(.deadline, at: at(last + 12.7)) == [.read])
        #expect(
            machine.handle(
                .read(other.lease(epoch: 4, .serving, lasts: .seconds(12)), revision: 19), at: at(last + 12.8))
                == [.write(own.lease(epoch: 5, .starting, lasts: .seconds(12)), over: 19)])
    }

    @Test func `a released lease, a closed port and an earlier run of this node are free at once`() {
        #expect(
            reading(other.lease(epoch: 4, .released, lasts: .seconds(12))).1.last
                == .write(own.lease(epoch: 5, .starting, lasts: .seconds(12)), over: 5))
        var earlier = own
        earlier.incarnation = "a0"
        #expect(
            reading(earlier.lease(epoch: 4, .serving, lasts: .seconds(12))).1.last
                == .write(own.lease(epoch: 5, .starting, lasts: .seconds(12)), over: 5))
        var (machine, _) = reading(other.lease(epoch: 4, .serving, lasts: .seconds(12)))
        #expect(machine.handle(.portClosed(epoch: 3), at: at(0.1)) == [.read], "of an earlier holder")
        #expect(
            machine.handle(.read(other.lease(epoch: 4, .serving, lasts: .seconds(12)), revision: 6), at: at(0.11)) == []
        )
        #expect(machine.handle(.portClosed(epoch: 4), at: at(0.2)) == [.read])
        #expect(
            machine.handle(.read(other.lease(epoch: 4, .serving, lasts: .seconds(12)), revision: 6), at: at(0.21))
                == [.write(own.lease(epoch: 5, .starting, lasts: .seconds(12)), over: 6)])
        // Another standby was faster.
        #expect(machine.handle(.refused, at: at(0.22)) == [.read])
        let third = ClusterMember(node: "c", identifier: "cc", incarnation: "c1", place: "c:1")
        #expect(
            machine.handle(.read(third.lease(epoch: 5, .serving, lasts: .seconds(12)), revision: 7), at: at(0.23))
                == [.standBy(third.lease(epoch: 5, .serving, lasts: .seconds(12))), .watch(place: "c:1", epoch: 5)])
    }

    @Test func `the holder renews, and ends a second before the lease does`() {
        var machine = serving()
        #expect(machine.nextDeadline == at(1.03), "a second after it was asked for")
        #expect(
            machine.handle(.deadline, at: at(1.03)) == [
                .write(own.lease(epoch: 1, .serving, lasts: .seconds(12)), over: 7)
            ])
        #expect(machine.handle(.written(revision: 8), at: at(1.9)) == [])
        var time = 2.03
        #expect(
            machine.handle(.deadline, at: at(time)) == [
                .write(own.lease(epoch: 1, .serving, lasts: .seconds(12)), over: 8)
            ])
        while time < 11.5 {
            #expect(machine.handle(.writeFailed, at: at(time)) == [])
            time += 0.25
            #expect(
                machine.handle(.deadline, at: at(time)) == [
                    .write(own.lease(epoch: 1, .serving, lasts: .seconds(12)), over: 8)
                ])
        }
        // Counted from when the last renewal was asked for, whatever comes then.
        #expect(machine.handle(.written(revision: 9), at: at(12.04)) == [.end(.leaseLost)])
        #expect(machine.nextDeadline == nil && machine.handle(.deadline, at: at(13)) == [])
    }

    @Test func `a renewal whose answer was lost is found again`() {
        var machine = serving()
        _ = machine.handle(.deadline, at: at(1.03))
        _ = machine.handle(.writeFailed, at: at(2.03))
        #expect(
            machine.handle(.deadline, at: at(2.28)) == [
                .write(own.lease(epoch: 1, .serving, lasts: .seconds(12)), over: 7)
            ])
        #expect(machine.handle(.refused, at: at(2.3)) == [.read])
        #expect(
            machine.handle(.read(own.lease(epoch: 1, .serving, lasts: .seconds(12)), revision: 8), at: at(2.4))
                == [.write(own.lease(epoch: 1, .serving, lasts: .seconds(12)), over: 8)])
    }

    @Test func `a claim whose answer was lost is found again, and counts from when it was made`() {
        var (machine, _) = reading(nil, revision: 0)
        #expect(machine.handle(.writeFailed, at: at(1)) == [])
        #expect(machine.handle(.deadline, at: at(1.25)) == [.read])
        #expect(
            machine.handle(.read(own.lease(epoch: 1, .starting, lasts: .seconds(12)), revision: 1), at: at(1.3)) == [
                .catchUp(epoch: 1)
            ])
        #expect(machine.handle(.deadline, at: at(11.02)) == [.end(.leaseLost)])
    }

    @Test func `who was frozen and deposed ends at once`() {
        var machine = serving()
        _ = machine.handle(.deadline, at: at(1.03))
        #expect(machine.handle(.refused, at: at(2)) == [.read])
        let lease = other.lease(epoch: 2, .serving, lasts: .seconds(12))
        #expect(machine.handle(.read(lease, revision: 9), at: at(2.1)) == [.end(.deposed(by: lease))])
        machine = serving()
        #expect(machine.handle(.fenced, at: at(1)) == [.end(.deposed(by: nil))])
        machine = serving()
        #expect(machine.handle(.deadline, at: at(60)) == [.end(.leaseLost)])
    }

    @Test func `a holder that goes hands over, and waits no longer than it must`() {
        var machine = serving()
        #expect(
            machine.handle(.release, at: at(0.5)) == [
                .write(own.lease(epoch: 1, .released, lasts: .seconds(12)), over: 7)
            ])
        #expect(machine.handle(.written(revision: 8), at: at(0.51)) == [])
        #expect(machine.isServing)
        #expect(machine.handle(.deadline, at: at(0.56)) == [.read])
        #expect(
            machine.handle(.read(other.lease(epoch: 2, .starting, lasts: .seconds(12)), revision: 9), at: at(0.57))
                == [])
        #expect(machine.handle(.deadline, at: at(0.62)) == [.read])
        #expect(
            machine.handle(.read(other.lease(epoch: 2, .serving, lasts: .seconds(12)), revision: 10), at: at(0.63)) == [
                .released(to: "b:1")
            ]
        )
        machine = serving()
        _ = machine.handle(.release, at: at(0.5))
        _ = machine.handle(.written(revision: 8), at: at(0.51))
        #expect(machine.handle(.deadline, at: at(3.6)) == [.released(to: nil)])
        // Nobody waits for one that does not serve.
        var (standby, _) = reading(other.lease(epoch: 4, .serving, lasts: .seconds(12)))
        #expect(standby.handle(.release, at: at(1)) == [.released(to: nil)])
    }

    @Test func `a renewal under way does not undo a release`() {
        var machine = serving()
        #expect(
            machine.handle(.deadline, at: at(1.03)) == [
                .write(own.lease(epoch: 1, .serving, lasts: .seconds(12)), over: 7)
            ])
        #expect(machine.handle(.release, at: at(1.04)) == [])
        #expect(
            machine.handle(.written(revision: 8), at: at(1.05)) == [
                .write(own.lease(epoch: 1, .released, lasts: .seconds(12)), over: 8)
            ])
    }
}
