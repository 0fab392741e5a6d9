// What may be lost on its way between a relay's rules and its workers, and what never is.
import Cryptography
import MonotonicTime
import Reactor
import RelayProtocol
import Synchronization
import TestSupport
import Testing

@testable import RelayServer

@Suite struct WorkerMailTests {
    private let id = ConnectionID(number: 1)

    /// One of each kind.
    private var orders: (control: [RelayWorkerOrder], datagrams: [RelayWorkerOrder]) {
        (
            [
                .action(.send(.memberLeft(.numbered(1)), to: [id])),
                .action(.sendSeries(MessageSeries(), to: [.init(id)])), .action(.close(id, .revoked, "removed")),
                .action(.startMedia(id, channel: 0, key: TrailerKey(), ssrc: SSRC(rawValue: 1))),
                .action(.stopMedia(id, channel: 0)), .returnCredit(id, bytes: 1),
            ],
            [
                .action(.forward([1], channel: 0, except: id, arrived: .zero)), .action(.answerRepair(id, [1])),
                .action(.answerBurst(id, BurstRequestID(rawValue: 1), [1])), .count,
            ]
        )
    }

    private var reports: (control: [RelayWorkerReport], datagrams: [RelayWorkerReport]) {
        let header = MediaPacketHeader(ssrc: SSRC(rawValue: 1), sequence: 1, marker: false, keyID: 1)
        let request = ClientMessage.repairRequest(
            .init(id: 1, ssrc: SSRC(rawValue: 1), keyID: 1, ranges: [.init(first: 1, last: 1)]))
        return (
            [
                .event(.disconnected(id)), .event(.message(id, .leave)),
                .announced(id, .connected(id, .numbered(1)), nil),
                .burstNotTaken(id, BurstRequestID(rawValue: 1), bytes: 1),
            ],
            [
                .media(header, [1], from: id, arrived: .zero), .repairRequest(request, from: id),
                .malformedMedia(from: id),
            ]
        )
    }

    @Test func `a worker that takes nothing loses packets, and no word of who talks or is removed`() throws {
        let mail = try Mailbox<RelayMail>()
        let (control, datagrams) = orders
        for _ in 0..<Mailbox<RelayMail>.bound {
            let isTaken = mail.post(.order(datagrams[0]), mayBeLost: RelayMail.order(datagrams[0]).mayBeLost)
            #expect(isTaken)
        }
        for order in datagrams {
            let isTaken = mail.post(.order(order), mayBeLost: RelayMail.order(order).mayBeLost)
            #expect(!isTaken, "\(order)")
        }
        for order in control {
            let isTaken = mail.post(.order(order), mayBeLost: RelayMail.order(order).mayBeLost)
            #expect(isTaken, "\(order)")
        }
        let arrived = Mutex<(packets: Int, control: [String])>((0, []))
        let loop = try EventLoop(name: "mail")
        defer { loop.stop() }
        let isOpen = loop.runAndWait {
            (try? mail.open(on: loop) { mail in
                guard case .order(let order) = mail else { return }
                arrived.withLock { arrived in
                    if case .action(.forward) = order {
                        arrived.packets += 1
                    } else {
                        arrived.control.append("\(order)")
                    }
                }
            }) != nil
        }
        #expect(isOpen)
        let deadline = ContinuousClock.now + .seconds(10)
        while arrived.withLock({ $0.control.count }) < control.count, ContinuousClock.now < deadline {
            loop.runAndWait {}
        }
        let (packets, told) = arrived.withLock { $0 }
        #expect(packets == Mailbox<RelayMail>.bound)
        #expect(told == control.map { "\($0)" }, "all of it, in order")
        loop.runAndWait { mail.shut() }
    }

    @Test func `of what a worker reports only what came in datagrams may be lost`() {
        #expect(reports.control.allSatisfy { !$0.mayBeLost })
        #expect(reports.datagrams.allSatisfy { $0.mayBeLost })
    }
}
