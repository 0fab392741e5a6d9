// The Low Energy links in the kernel's list. BlueZ 5.66 can miss that a link ended and came back within a few hundred
// milliseconds. It then still reports `Connected`, and a button that was held at that time would stay held for ever.

/// A Low Energy link.
public struct LELink: Hashable, Sendable {
    /// The controller's number of the link; used again once the link is gone.
    public let handle: UInt16
    /// Whom it leads to: the identity address of a bonded device.
    public let device: BluetoothAddress

    /// A link in the kernel's list.
    public init(handle: UInt16, device: BluetoothAddress) {
        self.handle = handle
        self.device = device
    }
}

/// Which devices have lost their link while BlueZ says that they are connected, on one adapter. Pure: what the kernel and BlueZ say goes in.
public struct LELinks: Sendable {
    private var handles: [UInt16: BluetoothAddress] = [:]
    /// Their link is gone, and BlueZ has not said so.
    public private(set) var lost: Set<BluetoothAddress> = []

    /// No links.
    public init() {}

    /// The kernel's list, as it is now.
    ///
    /// - Returns: The devices whose `lost` has changed.
    public mutating func update(_ links: [LELink]) -> Set<BluetoothAddress> {
        let before = lost
        let present = Set(links.map(\.device))
        lost.formUnion(handles.values.filter { !present.contains($0) })
        lost.subtract(present)
        handles = Dictionary(links.map { ($0.handle, $0.device) }) { $1 }
        return before.symmetricDifference(lost)
    }

    /// The controller said that this link has ended.
    ///
    /// - Returns: As `update`.
    public mutating func ended(_ handle: UInt16) -> Set<BluetoothAddress> {
        guard let device = handles.removeValue(forKey: handle), !handles.values.contains(device) else { return [] }
        return lost.insert(device).inserted ? [device] : []
    }

    /// BlueZ knows by now that the device is not connected.
    public mutating func bluezKnows(_ device: BluetoothAddress) { lost.remove(device) }
}
