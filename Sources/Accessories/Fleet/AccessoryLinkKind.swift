// How the presses of an accessory arrive: chosen from its configuration, its device and the profiles.
import BlueZ

/// How the presses of an accessory arrive.
enum AccessoryLinkKind: Equatable, Sendable {
    case gatt
    case stream(StreamKind)
    /// bluetoothd is only watched; why it is not used, or nil when the presses come from a local device.
    case passive(problem: String?)

    static let unbondedProblem =
        "it is not bonded, and bonded-only asks for that, for anybody could imitate it: "
        + "bond it with 'bluetoothctl pair', or remove it and add it with 'pttctl accessory add --bonded-only'"

    /// The kind that fits an accessory.
    ///
    /// - Parameters:
    ///   - isLocal: A local device is given to it.
    ///   - device: Its Bluetooth device; nil while it has none.
    static func fitting(
        _ configuration: AccessoryConfiguration, isLocal: Bool, device: DeviceFacts?, library: ProfileLibrary
    ) -> AccessoryLinkKind {
        // The installer gave its keys to us: they count, whatever else the device offers.
        guard !isLocal else { return .passive(problem: nil) }
        if let device, configuration.bars(device) { return .passive(problem: Self.unbondedProblem) }
        var profile: AccessoryProfile?
        if let id = configuration.profileID {
            profile = library[id]
            // Named, a family that is usually refused is used, if it can be.
            if let profile, profile.inputs.isEmpty {
                return .passive(problem: profile.refusal ?? "profile \"\(profile.id)\" has no controls")
            }
        } else if let device {
            profile = library.probable(name: device.name, services: device.services)
            if let refusal = profile?.refusal { return .passive(problem: refusal) }
        }
        switch profile?.transport {
        case .spp: return .stream(.serialPort)
        case .handsFree: return .stream(.handsFree)
        case .input, .serial: return .passive(problem: nil)
        case .gatt: return .gatt
        case nil: return configuration.isWireless ? .gatt : .passive(problem: nil)
        }
    }

    /// Who carries the presses; nil: the kernel.
    var carrier: PressCarrier? {
        switch self {
        case .gatt: .bluetoothd
        case .stream(.handsFree): .blueALSA
        case .stream(.serialPort), .passive: nil
        }
    }

    /// The device must not or cannot be used.
    var isRefusal: Bool { if case .passive(_?) = self { true } else { false } }

    /// A link of this kind that has been told nothing yet.
    ///
    /// - Parameter autoConnects: bluetoothd reconnects known devices by itself now.
    func makeLink(
        _ configuration: AccessoryConfiguration, _ library: ProfileLibrary, autoConnects: Bool
    ) -> any AccessoryLink {
        switch self {
        case .gatt: GATTAccessoryStateMachine(configuration, library: library, autoConnects: autoConnects)
        case .stream(let kind): StreamAccessoryStateMachine(configuration, kind: kind, library: library)
        case .passive(let problem): PassiveLink(problem: problem)
        }
    }
}

extension AccessoryConfiguration {
    /// It is found by Bluetooth.
    var isWireless: Bool { address != nil || name != nil }

    /// Whether the accessory must not be used with this device, for want of a bond.
    func bars(_ device: DeviceFacts?) -> Bool { isBondedOnly && device?.isBonded != true }
}
