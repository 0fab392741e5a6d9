// What a host's Low Energy advertisement says, and the names of the GATT service behind it. Pure.

/// The advertisement of a machine that hosts channels: the service's UUID, and a tag that changes with what the service hands out.
///
/// Legacy advertising data has 31 bytes (Bluetooth Core, Vol 6, Part B, 2.3.1): 3 for the flags, 18 for the UUID, 9 for the tag.
public struct BluetoothSignal: Hashable, Sendable {
    /// The service of pttd's channels nearby.
    public static let service = "5d0f1c2e-7a43-4b8e-9c61-2f9e5b7d8a10"
    /// Its characteristics, one for each page of a `BluetoothRecord`, in their order.
    public static let pages = (1...BluetoothRecord.pageCount).map { "5d0f1c2e-7a43-4b8e-9c61-2f9e5b7d8a1\($0)" }
    /// The identifier that the Bluetooth SIG keeps for nobody (Assigned Numbers, 7).
    public static let company: UInt16 = 0xFFFF
    /// The form of `manufacturerData`.
    public static let version: UInt8 = 1

    /// What is handed out now; nil: the advertisement does not tell.
    public var tag: UInt32?

    /// The signal of a record.
    public init(tag: UInt32) { self.tag = tag }

    /// Reads the data of an advertisement by company. Invalid or foreign data gives no tag.
    public init(manufacturerData: [UInt16: [UInt8]]) {
        guard let bytes = manufacturerData[Self.company], bytes.count == 5, bytes[0] == Self.version else { return }
        tag = bytes[1...].reduce(0) { $0 << 8 | UInt32($1) }
    }

    /// The data of the advertisement, for `company`.
    public var manufacturerData: [UInt8] { [Self.version] + bigEndian(tag ?? 0) }
}

/// A number in network order.
func bigEndian<Number: FixedWidthInteger>(_ number: Number) -> [UInt8] {
    withUnsafeBytes(of: number.bigEndian) { [UInt8]($0) }
}
