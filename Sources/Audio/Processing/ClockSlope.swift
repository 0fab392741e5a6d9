// Measures how fast one clock runs relative to another, through varying delays. Pure.

/// The slope of the difference between two clocks. Each observation is too large by a delay, so the smallest value of
/// every two seconds is kept, and a line is fitted to up to a minute of them.
///
/// A step (another route, a device that ran empty) is not a slope: a new line starts, and the known slope is kept.
struct ClockSlope {
    /// The least difference is looked for within so much time.
    static let window: Int64 = 2_000_000_000
    private static let pointsMax = 32
    /// A line needs at least this many points.
    private static let pointsMin = 8
    /// Two clocks cannot come apart by so much in one window: it is a step.
    private static let stepMax = 4e6
    /// A slope is accepted when its standard error is below this, in parts per million.
    private static let errorMax = 40.0
    /// Sound cards are within this, in parts per million; more is not corrected.
    static let limit = 500.0

    private var times = [Double](repeating: 0, count: pointsMax)
    private var values = [Double](repeating: 0, count: pointsMax)
    private var count = 0
    private var place = 0
    private var origin: (time: Int64, value: Int64)?
    private var windowEnd: Int64?
    private var least: (time: Int64, value: Int64) = (0, 0)
    private var lastPoint: (time: Double, value: Double) = (0, 0)
    /// Parts per million by which the difference grows; 0 until it is known.
    private(set) var partsPerMillion = 0.0

    /// The difference has nothing to do with what it was, the slope has.
    mutating func restart() {
        count = 0
        place = 0
        origin = nil
        windowEnd = nil
    }

    /// Forgets the slope, too: another clock.
    mutating func reset() {
        restart()
        partsPerMillion = 0
    }

    /// The difference of the clocks, in nanoseconds, at a time.
    mutating func observe(_ difference: Int64, at time: Int64) {
        guard let end = windowEnd else {
            least = (time, difference)
            windowEnd = time &+ Self.window
            return
        }
        if time >= end {
            add(least)
            least = (time, difference)
            windowEnd = time &+ Self.window
        } else if difference < least.value {
            least = (time, difference)
        }
    }

    private mutating func add(_ point: (time: Int64, value: Int64)) {
        if origin == nil { origin = point }
        guard let origin else { return }
        let time = Double(point.time &- origin.time)
        let value = Double(point.value &- origin.value)
        if count > 0 {
            let step = value - lastPoint.value - (time - lastPoint.time) * partsPerMillion / 1e6
            if abs(step) > Self.stepMax {
                count = 0
                place = 0
            }
        }
        lastPoint = (time, value)
        times[place] = time
        values[place] = value
        place = (place + 1) % Self.pointsMax
        count = min(count + 1, Self.pointsMax)
        if count >= Self.pointsMin { fit() }
    }

    private mutating func fit() {
        let number = Double(count)
        var (meanTime, meanValue) = (0.0, 0.0)
        for index in 0..<count {
            meanTime += times[index] / number
            meanValue += values[index] / number
        }
        var (squares, products, spread) = (0.0, 0.0, 0.0)
        for index in 0..<count {
            let (time, value) = (times[index] - meanTime, values[index] - meanValue)
            squares += time * time
            products += time * value
            spread += value * value
        }
        guard squares > 0 else { return }
        let slope = products / squares
        let residual = max(0, spread - slope * products) / (number - 2)
        let error = (residual / squares).squareRoot() * 1e6
        guard error < Self.errorMax else { return }
        let measured = min(Self.limit, max(-Self.limit, slope * 1e6))
        // A slope that could be chance is none.
        partsPerMillion = abs(measured) > 2 * error ? measured : 0
    }
}
