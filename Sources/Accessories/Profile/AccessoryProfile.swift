// What is known of one family of accessories: how it is recognised, and what its bytes mean. Data, never code.
import BlueZ
import Vocabulary

/// A family of push-to-talk accessories, as described by one profile file.
public struct AccessoryProfile: Hashable, Sendable {
    /// Its name in configuration files, `[a-z0-9-]`.
    public var id: String
    /// Its name for people.
    public var title: String
    /// How sure the facts are.
    public var confidence: Confidence
    /// Where the facts are from.
    public var sources: [String]
    /// One author is all there is behind the facts: shown as experimental.
    public var isExperimental = false
    /// Why a device of this family cannot be used as a talk button unless this profile is named for it, in words for people; nil: it can.
    public var refusal: String?
    /// Only used when it is named: its marks are those of many other devices.
    public var isExplicitOnly = false
    /// How its presses come in.
    public var transport = Transport.gatt
    /// Whether to pair.
    public var bonding: Bonding
    /// Where the battery level comes from.
    public var battery: Battery
    /// Names the device advertises; of an input device or a serial port, the name that the kernel gives it.
    public var names: [NamePattern]
    /// The service's UUID is the maker's own: no other device has it, so that no name is needed.
    public var serviceIdentifies: Bool
    /// Services that a device of the family advertises, for families without inputs.
    public var advertisedServices: [BluetoothUUID] = []
    /// Input devices of the family, by vendor and product.
    public var inputDevices: [InputDeviceID] = []
    /// udev properties that input devices and serial ports of the family have; `*` in a value stands for any characters.
    public var udevProperties: [String: String] = [:]
    /// Written, in order, once the inputs are subscribed to.
    public var startCommands: [CharacteristicWrite] = []
    /// Sent over a Bluetooth serial port once it is open; empty: nothing.
    public var streamStart: [UInt8] = []
    /// Its light.
    public var light: Light?
    /// The link while nothing is held; nil: the usual one.
    public var idleLink: IdleLink?
    /// The characteristics to subscribe to; of any other transport there is one at most, which is the stream or the keys.
    public var inputs: [Input]
    /// How each control talks unless the configuration says otherwise. Of a control that does not talk by itself it is `none`.
    public var gestures: [Control: Gesture]
    /// Controls that tell no release, or hide it: they can only toggle.
    public var toggleOnly: Set<Control> = []
    /// For how long an emergency control has to be held before it counts. One that tells no release counts at once.
    public var emergencyHold = Self.usualEmergencyHold
    /// Windows that keep contact bounce and accidents from becoming presses.
    public var timing: GestureTiming

    /// How long an emergency control is held unless the profile says otherwise.
    public static let usualEmergencyHold = Duration.seconds(1)

    /// The services of all inputs, each once.
    public var services: [BluetoothUUID] {
        inputs.compactMap(\.service).reduce(into: []) { if !$0.contains($1) { $0.append($1) } }
    }

    /// The controls of all inputs, in the order of the file.
    public var controls: [Control] { inputs.flatMap(\.rule.controls) }

    /// Whether a device's name is one of this family's.
    public func matches(name: String?) -> Bool {
        guard let name else { return false }
        return names.contains { $0.matches(name) }
    }

    /// Whether a device has every characteristic that this profile cannot do without.
    ///
    /// - Parameter has: Whether the device has a characteristic in a service.
    public func isComplete(has: (_ service: BluetoothUUID, _ characteristic: BluetoothUUID) -> Bool) -> Bool {
        inputs.allSatisfy { input in
            guard let service = input.service, let characteristic = input.characteristic else { return false }
            return input.isOptional || has(service, characteristic)
        }
    }

    /// What a control does unless the configuration says otherwise.
    public func defaultAction(of control: Control) -> ControlAction {
        // A talk control whose gesture is "none" in the file is one that the file takes from talking.
        let action = control.defaultAction
        return action == .transmit && gestures[control] == Gesture.none ? .none : action
    }

    /// How a control talks when it does: as `wanted` where it can, and never not at all.
    public func talkGesture(of control: Control, wanted: Gesture? = nil) -> Gesture {
        let chosen = wanted ?? gestures[control] ?? .hold
        if toggleOnly.contains(control) { return .toggle }
        return chosen == .none ? .hold : chosen
    }
}

extension AccessoryProfile {
    /// A family of which nothing else is known.
    package init(id: String, title: String, confidence: Confidence, sources: [String]) {
        self.init(
            id: id, title: title, confidence: confidence, sources: sources, bonding: .asNeeded, battery: .none,
            names: [], serviceIdentifies: false, inputs: [], gestures: [:], timing: GestureTiming())
    }
}
