// When a listener reports its reception of a burst. Pure.
import MonotonicTime

/// Often while packets are lost, for the talker adapts to it; seldom while all is well: each report is a packet and an acknowledgement,
/// times thousands of listeners.
struct ReportSchedule: Sendable, Equatable {
    /// Between reports while nothing is lost.
    static let interval: Duration = .seconds(4)
    /// Between reports while something is.
    static let lossInterval: Duration = .seconds(2)

    /// When the next one is due while nothing is lost, and when something is.
    private var (regular, early): (Instant, Instant)
    /// From the first report to the second.
    private var second: Duration?
    /// The losses in the last report.
    private var lost = 0
    private var wasLossy = false

    /// The first report is due `first` after a burst's first packet, 1 to 2 s. From the second one on, listeners whose `first` is spread
    /// evenly over that are spread over the whole interval.
    init(first: Duration, at now: Instant) {
        (regular, early) = (now + first, now + first)
        second = first * 3 - .seconds(2)
    }

    /// When the next report is due, `lost` packets of the burst having been lost so far. A loss may make it earlier.
    func next(lost: Int) -> Instant { lost != self.lost || wasLossy ? min(regular, early) : regular }

    /// A report with `lost` packets was made.
    mutating func reported(lost: Int, at now: Instant) {
        // A clean one follows the last loss soon, too: what the talker does against loss ends with it.
        wasLossy = lost != self.lost
        self.lost = lost
        early = now + Self.lossInterval
        regular = now + (second ?? Self.interval)
        second = nil
    }
}
