// What comes in from Bluetooth and the machine's devices, for those who watch it besides the rules; and a bound for the log.
import MonotonicTime

/// What `AccessoryService` hands on to setup.
enum AccessoryReport: Sendable {
    case bluetooth(BluetoothReport)
    case local(LocalDeviceReport)
}

/// Lets so many lines a second through, so that a flood of presses is no flood of log lines.
struct LogLimiter {
    static let linesPerSecondMax = 40

    private var began = Instant.zero
    private var count = 0

    /// Whether a line may be written, and how many were not in the second before.
    ///
    /// - Parameter lines: The line, and those that will be written because it was.
    mutating func admit(at time: Instant, lines: Int = 1) -> (isAdmitted: Bool, missed: Int) {
        var missed = 0
        if time - began >= .seconds(1) {
            missed = max(0, count - Self.linesPerSecondMax)
            (began, count) = (time, 0)
        }
        count += lines
        return (count <= Self.linesPerSecondMax, missed)
    }
}
