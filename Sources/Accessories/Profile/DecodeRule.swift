// What the bytes or keys of an input mean: one of five rules, each with its controls.

/// What the values of an input mean.
public enum DecodeRule: Hashable, Sendable {
    /// Bytes that are one thing while pressed and another when released.
    public struct Values: Hashable, Sendable {
        /// The position of the first byte that counts.
        public var byte: Int
        /// The length of the whole value in bytes.
        public var size: Int
        /// Each control with its bytes for pressed and released.
        public var controls: [ValueControl]
    }

    /// A control in a value of codes.
    public struct ValueControl: Hashable, Sendable {
        /// Which control.
        public var control: Control
        /// The bytes, from the rule's position on, while it is pressed.
        public var pressed: [UInt8]
        /// The bytes when it is not; nil: it tells presses only.
        public var released: [UInt8]?

        /// A control that tells its presses, and perhaps its releases.
        public init(control: Control, pressed: [UInt8], released: [UInt8]?) {
            self.control = control
            self.pressed = pressed
            self.released = released
        }

        /// A control with one byte for each.
        public init(control: Control, pressed: UInt8, released: UInt8?) {
            self.init(control: control, pressed: [pressed], released: released.map { [$0] })
        }
    }

    /// A byte whose bits say which controls are held.
    public struct Bits: Hashable, Sendable {
        /// The position of the byte.
        public var byte: Int
        /// The length of the whole value in bytes.
        public var size: Int
        /// Bits that mean no button, a heartbeat say.
        public var ignored: UInt8
        /// Each control's bit.
        public var controls: [BitControl]
    }

    /// A control in a byte of bits.
    public struct BitControl: Hashable, Sendable {
        /// Which control.
        public var control: Control
        /// Its bit, one of 0x01 … 0x80.
        public var bit: UInt8
    }

    /// A byte that is zero when the control is released.
    public struct NonZero: Hashable, Sendable {
        /// The position of the byte.
        public var byte: Int
        /// The length of the whole value in bytes.
        public var size: Int
        /// Which control.
        public var control: Control
    }

    /// Words without separators, possibly glued together or split between messages.
    public struct Text: Hashable, Sendable {
        /// Each control with its words; letters match in either case. No word begins another.
        public var controls: [TextControl]
        /// The word that one byte of battery level follows.
        public var batteryPrefix: String?
    }

    /// A control in a text.
    public struct TextControl: Hashable, Sendable {
        /// Which control.
        public var control: Control
        /// The words that say pressed, any of them.
        public var pressed: [String]
        /// The words that say released, any of them; controls may share them. Empty: it tells presses only.
        public var released: [String]
    }

    /// Keys of an input device.
    public struct Keys: Hashable, Sendable {
        /// Each control with its keys.
        public var controls: [KeyControl]
    }

    /// A control on an input device.
    public struct KeyControl: Hashable, Sendable {
        /// Which control.
        public var control: Control
        /// KEY_* and BTN_* of <linux/input-event-codes.h>; it is down while any of them is.
        public var codes: [UInt16]
    }

    /// One value per button.
    case value(Values)
    /// A mask of the buttons held.
    case bits(Bits)
    /// Anything but zero is held.
    case nonzero(NonZero)
    /// ASCII words.
    case text(Text)
    /// Key codes of the kernel.
    case keys(Keys)

    /// The controls this rule can report, in the order of the file.
    public var controls: [Control] {
        switch self {
        case .value(let rule): rule.controls.map(\.control)
        case .bits(let rule): rule.controls.map(\.control)
        case .nonzero(let rule): [rule.control]
        case .text(let rule): rule.controls.map(\.control)
        case .keys(let rule): rule.controls.map(\.control)
        }
    }

    /// The controls that tell presses only: each is a press and at once its release.
    public var clicks: Set<Control> {
        switch self {
        case .value(let rule): Set(rule.controls.filter { $0.released == nil }.map(\.control))
        case .text(let rule): Set(rule.controls.filter(\.released.isEmpty).map(\.control))
        case .bits, .nonzero, .keys: []
        }
    }
}
