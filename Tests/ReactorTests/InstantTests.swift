// The clock's arithmetic, short and long.
import MonotonicTime
import TestSupport
import Testing

@Suite struct InstantTests {
    @Test(
        arguments: [
            (.zero, 0), (.nanoseconds(1), 1), (.nanoseconds(-1), -1), (.seconds(9), 9_000_000_000),
            (.seconds(10), 10_000_000_000), (.seconds(-10), -10_000_000_000),
            (.seconds(86_400 * 365), 31_536_000_000_000_000),
            (Duration(attoseconds: 1_999_999_999), 1), (Duration(attoseconds: -1_999_999_999), -1),
            (Duration(secondsComponent: 20, attosecondsComponent: 1_999_999_999), 20_000_000_001),
            (Duration(secondsComponent: 9_444, attosecondsComponent: 732_965_739_290_427_391), 9_444_732_965_739),
            (Duration(secondsComponent: 9_444, attosecondsComponent: 732_965_739_290_427_392), 9_444_732_965_739),
            (Duration(secondsComponent: 9_445, attosecondsComponent: 1_999_999_999), 9_445_000_000_001),
            (.seconds(Int64.max), .max), (.seconds(-Int64.max), .min),
        ] as [(Duration, Int64)])
    func `a duration is whole nanoseconds, rounded toward zero and clamped`(duration: Duration, expected: Int64) {
        #expect(duration.nanoseconds == expected)
    }

    @Test func `what is between two instants leads from one to the other`() {
        var random = SeededGenerator()
        for _ in 0..<10_000 {
            let places = (0..<2).map { _ in
                Instant(
                    nanoseconds: Int64.random(
                        in: 0...Int64.max >> Int64.random(in: 0...62, using: &random), using: &random))
            }
            let between = places[1] - places[0]
            #expect(between == .nanoseconds(places[1].nanoseconds - places[0].nanoseconds))
            #expect(places[0] + between == places[1] && places[1] - between == places[0])
        }
    }
}
