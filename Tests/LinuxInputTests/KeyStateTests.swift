import Glibc
// Key edges, and the words for what goes wrong.
import MonotonicTime
import Testing

@testable import LinuxInput

private let f13: UInt16 = 183

@Suite struct KeyStateTests {
    private func run(_ values: [(UInt16, Int32)]) -> [String] {
        var keys = KeyStateMachine()
        return values.flatMap { code, value in
            keys.handle(.key(code: code, value: value), at: .zero).map { "\($0.code)\($0.isDown ? "+" : "-")" }
        }
    }

    @Test func `automatic repeats and duplicates are nothing`() {
        #expect(run([(f13, 1), (f13, 2), (f13, 2), (f13, 1), (f13, 0), (f13, 0)]) == ["183+", "183-"])
    }

    @Test func `a key that was held before opening is not released`() {
        #expect(run([(f13, 2), (f13, 0), (f13, 1)]) == ["183+"])
    }

    @Test func `values and codes that do not exist are nothing`() {
        #expect(run([(f13, 3), (f13, -1), (0x300, 1), (0xFFFF, 1), (f13, .max)]).isEmpty)
    }

    @Test func `removal releases every held key once`() {
        var keys = KeyStateMachine()
        for code: UInt16 in [f13, 30] { _ = keys.handle(.key(code: code, value: 1), at: .zero) }
        let now = Instant.zero + .seconds(1)
        #expect(
            keys.handle(.removed, at: now) == [
                KeyEdge(code: 30, isDown: false, time: now), KeyEdge(code: f13, isDown: false, time: now),
            ])
        #expect(keys.handle(.removed, at: now).isEmpty)
    }

    @Test(arguments: [
        (EACCES, "72-pttd-access.rules"), (EBUSY, "taken by another program"), (ENODEV, "plug it in again"),
        (ENOTTY, "is not an input device"), (EIO, "ioctl: "),
    ])
    func `errors say what to do`(code: Int32, words: String) {
        let error = LinuxInputError(node: "/dev/input/event7", call: "ioctl", code: code)
        #expect("\(error)".contains("/dev/input/event7") && "\(error)".contains(words))
    }
}
