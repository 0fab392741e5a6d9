// Link parameters of a connected Low Energy device: what BlueZ's D-Bus interface cannot set. Through libbluetooth.
import CBluetooth
import Glibc
import MonotonicTime

/// What is asked of a link (Bluetooth Core, Vol 4, Part E, 7.8.18).
public struct LEConnectionParameters: Hashable, Sendable, CustomStringConvertible {
    /// How often the two sides meet: 7.5 ms … 4 s. A notification waits for at most one interval.
    public let interval: ClosedRange<Duration>
    /// How many connection events the device may skip: 0 … 499.
    public let latency: Int
    /// The supervision timeout: 100 ms … 32 s, more than twice the longest time between connection events.
    public let supervisionTimeout: Duration

    /// As logs have it.
    public var description: String {
        let interval = "\(interval.lowerBound.milliseconds)...\(interval.upperBound.milliseconds) ms"
        return "interval \(interval), latency \(latency), timeout \(supervisionTimeout.milliseconds) ms"
    }

    /// Parameters in these bounds.
    /// - Throws: `LEConnectionError.invalidParameters`.
    public init(interval: ClosedRange<Duration>, latency: Int, supervisionTimeout: Duration) throws(LEConnectionError) {
        guard interval.lowerBound >= .microseconds(7500), interval.upperBound <= .seconds(4) else {
            throw .invalidParameters("the interval must be 7.5 ms to 4 s")
        }
        guard (0...499).contains(latency) else { throw .invalidParameters("the latency must be 0 to 499") }
        guard supervisionTimeout >= .milliseconds(100), supervisionTimeout <= .seconds(32),
            supervisionTimeout > interval.upperBound * (1 + latency) * 2
        else {
            throw .invalidParameters(
                "the supervision timeout must be 100 ms to 32 s, and more than 2 × (1 + latency) × interval")
        }
        self.interval = interval
        self.latency = latency
        self.supervisionTimeout = supervisionTimeout
    }

    var command: le_connection_update_cp {
        func units(_ duration: Duration, of unit: Duration) -> UInt16 { UInt16(clamping: Int64(duration / unit)) }
        return le_connection_update_cp(
            handle: 0, min_interval: units(interval.lowerBound, of: .microseconds(1250)).littleEndian,
            max_interval: units(interval.upperBound, of: .microseconds(1250)).littleEndian,
            latency: UInt16(latency).littleEndian,
            supervision_timeout: units(supervisionTimeout, of: .milliseconds(10)).littleEndian,
            min_ce_length: UInt16(1).littleEndian, max_ce_length: UInt16(1).littleEndian)
    }
}

/// Why link parameters could not be requested. None of these errors changes the link.
public enum LEConnectionError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The values are out of bounds.
    case invalidParameters(String)
    /// The process may not use raw HCI sockets.
    case notPermitted
    /// The kernel has no Bluetooth.
    case noBluetooth
    /// There is no such adapter.
    case noAdapter
    /// The device has no Low Energy link on that adapter.
    case notConnected
    /// Something else: the call and the errno value.
    case failed(String, Int32)

    /// What is wrong and what helps.
    public var description: String {
        switch self {
        case .invalidParameters(let what): return what
        case .notPermitted:
            return "asking for link parameters needs CAP_NET_RAW; with systemd: AmbientCapabilities=CAP_NET_RAW"
        case .noBluetooth: return "the kernel has no Bluetooth (modprobe bluetooth)"
        case .noAdapter: return "there is no such Bluetooth adapter"
        case .notConnected: return "the device has no Low Energy link on that adapter"
        case .failed(let call, let code): return "\(call): \(String(cString: strerror(code)))"
        }
    }

    init(_ call: String, _ code: Int32) {
        switch code {
        case EPERM, EACCES: self = .notPermitted
        case EAFNOSUPPORT, EPROTONOSUPPORT: self = .noBluetooth
        case ENODEV: self = .noAdapter
        case ENOENT, ENOTCONN: self = .notConnected
        default: self = .failed(call, code)
        }
    }
}

/// Asks the kernel for link parameters.
public enum LEConnection {
    /// `HCIGETCONNINFO`, `_IOR('H', 213, int)`, a macro that Swift does not see.
    private static let getConnectionInformation: UInt = 0x8004_48d5
    /// `HCIGETCONNLIST`, `_IOR('H', 212, int)`.
    private static let getConnectionList: UInt = 0x8004_48d4
    /// The most links that are looked at; controllers have room for fewer.
    private static let linksMaximum = 64
    /// `BT_CONNECTED` of bluetooth.h.
    private static let connected: UInt16 = 1
    /// `LE_LINK` of hci.h.
    private static let lowEnergyLink: UInt8 = 0x80
    /// `OGF_LE_CTL`, `OCF_LE_CONN_UPDATE`.
    private static let updateCommand: (group: UInt16, command: UInt16) = (0x08, 0x0013)

    /// Asks for `parameters` on the link to `device`. It does not wait for the controller, which agrees on them with
    /// the device afterwards; a device may refuse, and nothing is changed then.
    ///
    /// - Parameters:
    ///   - device: The address of the link, as `Device.address` has it now.
    ///   - adapter: The kernel's number of the adapter.
    public static func request(
        _ parameters: LEConnectionParameters, device: BluetoothAddress, adapter: UInt16
    ) throws(LEConnectionError) {
        let socket = hci_open_dev(Int32(adapter))
        guard socket >= 0 else { throw LEConnectionError("hci_open_dev", errno) }
        defer { hci_close_dev(socket) }
        var command = parameters.command
        command.handle = try handle(of: device, socket).littleEndian
        let result = hci_send_cmd(
            socket, updateCommand.group, updateCommand.command, UInt8(MemoryLayout<le_connection_update_cp>.size),
            &command)
        guard result == 0 else { throw LEConnectionError("hci_send_cmd", errno) }
    }

    /// The Low Energy links that the kernel has on `adapter` now. Nothing is sent; no capability is needed.
    ///
    /// - Parameter socket: A raw HCI socket of that adapter.
    static func links(adapter: UInt16, _ socket: Int32) throws(LEConnectionError) -> [LELink] {
        // hci_conn_list_req with its flexible array.
        let header = MemoryLayout<hci_conn_list_req>.stride
        let entry = MemoryLayout<hci_conn_info>.stride
        var found: [LELink] = []
        var code: Int32 = 0
        withUnsafeTemporaryAllocation(byteCount: header + Self.linksMaximum * entry, alignment: 8) { buffer in
            buffer.initializeMemory(as: UInt8.self, repeating: 0)
            buffer.storeBytes(of: adapter, toByteOffset: 0, as: UInt16.self)
            buffer.storeBytes(of: UInt16(Self.linksMaximum), toByteOffset: 2, as: UInt16.self)
            guard let start = buffer.baseAddress, ioctl(socket, Self.getConnectionList, start) == 0 else {
                code = errno
                return
            }
            let count = min(Int(buffer.loadUnaligned(fromByteOffset: 2, as: UInt16.self)), Self.linksMaximum)
            for index in 0..<count {
                let information = buffer.loadUnaligned(fromByteOffset: header + index * entry, as: hci_conn_info.self)
                guard information.type == lowEnergyLink, information.state == connected else { continue }
                let bytes = withUnsafeBytes(of: information.bdaddr) { Array($0.reversed()) }
                guard let address = BluetoothAddress(bytes: bytes) else { continue }
                found.append(LELink(handle: information.handle, device: address))
            }
        }
        guard code == 0 else { throw LEConnectionError("ioctl(HCIGETCONNLIST)", code) }
        return found
    }

    private static func handle(of device: BluetoothAddress, _ socket: Int32) throws(LEConnectionError) -> UInt16 {
        // The kernel puts the answer right behind the request (hci_conn_info_req with its flexible array).
        let request = MemoryLayout<hci_conn_info_req>.stride
        let size = request + MemoryLayout<hci_conn_info>.stride
        var code: Int32 = 0
        let handle = withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) { buffer -> UInt16 in
            buffer.initializeMemory(as: UInt8.self, repeating: 0)
            // Least significant byte first.
            for (index, byte) in device.bytes.reversed().enumerated() { buffer[index] = byte }
            buffer[6] = lowEnergyLink
            guard let start = buffer.baseAddress, ioctl(socket, getConnectionInformation, start) == 0 else {
                code = errno
                return 0
            }
            return buffer.loadUnaligned(fromByteOffset: request, as: UInt16.self)
        }
        guard code == 0 else { throw LEConnectionError("ioctl(HCIGETCONNINFO)", code) }
        return handle
    }
}
