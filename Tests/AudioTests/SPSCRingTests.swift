// The ring between two threads.
import Glibc
import Testing

@testable import Audio

@Suite struct SPSCRingTests {
    @Test func `slots come out in order with their payload`() {
        let ring = SPSCRing<UInt32>(capacity: 4, payloadCapacity: 8)
        for round in 0..<10 as Range<UInt32> {
            let bytes = [UInt8](repeating: UInt8(round), count: Int(round % 9))
            #expect(bytes.withUnsafeBytes { ring.push(round, $0) })
            let taken = ring.pop { header, payload in (header, Array(payload)) }
            #expect(taken?.0 == round)
            #expect(taken?.1 == bytes)
        }
        #expect(ring.pop { header, _ in header } == nil)
    }

    @Test func `a full ring refuses and a reserve is kept`() {
        let ring = SPSCRing<Int>(capacity: 4, payloadCapacity: 0)
        #expect(ring.push(1, reserve: 2))
        #expect(ring.push(2, reserve: 2))
        #expect(!ring.push(3, reserve: 2))
        #expect(ring.push(3))
        #expect(ring.push(4))
        #expect(!ring.push(5))
        #expect(ring.count == 4)
    }

    @Test func `a payload longer than a slot is refused`() {
        let ring = SPSCRing<Int>(capacity: 4, payloadCapacity: 2)
        #expect([1, 2, 3].withUnsafeBytes { !ring.push(1, $0) })
    }

    @Test func `two threads lose and invent nothing`() async {
        let ring = SPSCRing<Int>(capacity: 16, payloadCapacity: 8)
        let count = 100_000
        async let sent: Void = Task.detached {
            var next = 0
            while next < count {
                let pushed = withUnsafeBytes(of: next &* 31) { ring.push(next, $0) }
                if pushed { next += 1 } else { sched_yield() }
            }
        }.value
        let wrong = await Task.detached {
            var (expected, wrong) = (0, 0)
            while expected < count {
                let good = ring.pop { header, payload in
                    header == expected && payload.loadUnaligned(as: Int.self) == expected &* 31
                }
                guard let good else {
                    sched_yield()
                    continue
                }
                if !good { wrong += 1 }
                expected += 1
            }
            return wrong
        }.value
        await sent
        #expect(wrong == 0)
    }
}
