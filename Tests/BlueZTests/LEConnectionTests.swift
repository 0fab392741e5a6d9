// Link parameters: bounds, what goes to the controller, and refusals.
import Glibc
import Testing

@testable import BlueZ

@Suite struct LEConnectionTests {
    @Test func `parameters become the units of the controller`() throws {
        let parameters = try LEConnectionParameters(
            interval: .microseconds(7500) ... .milliseconds(15), latency: 0, supervisionTimeout: .milliseconds(400))
        let bytes = withUnsafeBytes(of: parameters.command) { Array($0) }
        #expect(bytes == [0, 0, 6, 0, 12, 0, 0, 0, 40, 0, 1, 0, 1, 0])
    }

    @Test func `parameters out of bounds are refused`() {
        let cases: [(ClosedRange<Duration>, Int, Duration)] = [
            (.milliseconds(5) ... .milliseconds(15), 0, .seconds(1)),
            (.milliseconds(10) ... .seconds(5), 0, .seconds(32)),
            (.milliseconds(10) ... .milliseconds(15), -1, .seconds(1)),
            (.milliseconds(10) ... .milliseconds(15), 500, .seconds(32)),
            (.milliseconds(10) ... .milliseconds(15), 0, .milliseconds(50)),
            (.milliseconds(10) ... .milliseconds(100), 4, .seconds(1)),
            (.milliseconds(10) ... .milliseconds(15), 0, .seconds(33)),
        ]
        for (interval, latency, timeout) in cases {
            #expect(throws: LEConnectionError.self, "\(interval) \(latency) \(timeout)") {
                try LEConnectionParameters(interval: interval, latency: latency, supervisionTimeout: timeout)
            }
        }
    }

    /// Whatever the machine has: without Bluetooth, without the adapter or without the right there is a typed error.
    @Test func `a request that cannot be made says why and what helps`() throws {
        let parameters = try LEConnectionParameters(
            interval: .milliseconds(10) ... .milliseconds(15), latency: 0, supervisionTimeout: .seconds(1))
        let address = try #require(BluetoothAddress("C4:11:22:33:44:55"))
        let error = #expect(throws: LEConnectionError.self) {
            try LEConnection.request(parameters, device: address, adapter: 65_535)
        }
        let expected: [LEConnectionError] = [.noBluetooth, .noAdapter, .notPermitted]
        #expect(error.map { expected.contains($0) } == true, "\(String(describing: error))")
    }

    @Test func `errors of the kernel have names`() {
        #expect(LEConnectionError("x", EPERM) == .notPermitted)
        #expect(LEConnectionError("x", EACCES) == .notPermitted)
        #expect(LEConnectionError("x", EAFNOSUPPORT) == .noBluetooth)
        #expect(LEConnectionError("x", ENODEV) == .noAdapter)
        #expect(LEConnectionError("x", ENOENT) == .notConnected)
        #expect(LEConnectionError("x", EIO) == .failed("x", EIO))
        #expect(LEConnectionError.notPermitted.description.contains("CAP_NET_RAW"))
    }
}
